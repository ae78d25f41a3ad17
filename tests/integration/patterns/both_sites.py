"""A producer that writes each event to both sites, and a consumer that takes it once.

For sources outside the shop, a till or a scale, that must not wait for a failover. The topic is not mirrored.
What makes it safe is what makes the shop's own log safe: one writer per entity, which counts its versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from confluent_kafka import KafkaError, Message, Producer

from infra.base.errors import DaybookError
from services.kernel.log import clients
from services.kernel.record.envelope import Envelope, Metadata, read_headers, write_headers

Event: TypeAlias = Envelope[bytes]


class TwoWriters(DaybookError):
    """Another event under a version that was taken: the entity has two writers, and neither is right."""


class BothSites:
    """Sends each event to every site under the same id and version; remembers which site still lacks it.

    `bootstraps` are addresses by site. A site that is away costs `seconds` and no event: what it lacks is
    owed, and is sent again whenever the caller likes. A record that was taken and not confirmed comes twice
    then; the version tells.
    """

    def __init__(self, bootstraps: Mapping[str, str], topic: str, seconds: float = 10.0) -> None:
        self._topic, self._seconds = topic, seconds
        self._producers = {site: _producer(address, seconds) for site, address in bootstraps.items()}
        self._owed: dict[str, list[Event]] = {site: [] for site in bootstraps}

    def send(self, event: Event) -> None:
        """Queue it for all sites."""
        for site in self._producers:
            self._send(site, event)

    def settle(self) -> dict[str, list[Event]]:
        """Wait until each site has taken or missed what was sent; answers what each site lacks, in order.

        An event that *every* site lacks was not accepted by anybody: its source must keep it.
        """
        for producer in self._producers.values():
            producer.flush(2 * self._seconds)
        return {
            site: sorted(events, key=lambda event: event.metadata.version)
            for site, events in self._owed.items()
        }

    def send_owed(self) -> None:
        """Queue what sites lack for them once more."""
        for site, events in self._owed.items():
            self._owed[site] = []
            for event in events:
                self._send(site, event)

    def _send(self, site: str, event: Event) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self._owed[site].append(event)

        headers: list[tuple[str, str | bytes | None]] = [*write_headers(event.metadata)]
        key = event.metadata.subject
        self._producers[site].produce(self._topic, event.body, key, headers=headers, on_delivery=delivered)


class Once:
    """Takes each event once, in the order of its entity's versions, from whichever site it comes first.

    `versions` is what the consumer's own store holds: write it in one transaction with the effects, as every
    read model does. What arrives ahead of its turn waits in memory: store positions while nothing waits.
    """

    def __init__(self, versions: Mapping[str, int] | None = None) -> None:
        self._taken: dict[str, tuple[int, str]] = {
            entity: (version, "") for entity, version in (versions or {}).items()
        }
        self._waiting: dict[str, dict[int, Event]] = {}
        self.dropped = 0

    @property
    def versions(self) -> dict[str, int]:
        return {entity: version for entity, (version, _) in self._taken.items()}

    @property
    def waiting(self) -> int:
        """Events whose predecessor no site has delivered yet. One that stays is a gap: look for it."""
        return sum(map(len, self._waiting.values()))

    def take(self, event: Event) -> Iterable[Event]:
        """What may be applied now: nothing, this event, or it and those that waited for it.

        Raises TwoWriters where the newest version of the entity, or a waiting one, bears another event's id.
        """
        entity, version = event.metadata.subject, event.metadata.version
        last, last_id = self._taken.get(entity, (0, ""))
        waiting = self._waiting.setdefault(entity, {})
        known = last_id if version == last else waiting[version].metadata.id if version in waiting else ""
        if known and known != event.metadata.id:
            raise TwoWriters(f"{entity} version {version}: {event.metadata.id} and {known}")
        if version <= last or version in waiting:
            self.dropped += 1
            return []
        waiting[version] = event
        ready = []
        while next_one := waiting.pop(last + 1, None):
            ready.append(next_one)
            last += 1
            self._taken[entity] = (last, next_one.metadata.id)
        if not waiting:
            del self._waiting[entity]
        return ready


def event_of(record: Message) -> Event:
    """Raises Malformed where the headers are no envelope."""
    metadata: Metadata = read_headers(record.headers())
    return Envelope(metadata, record.value() or b"")


def _producer(bootstrap: str, seconds: float) -> Producer:
    return clients.writer(
        bootstrap,
        {
            "message.timeout.ms": int(seconds * 1000),
            "log_level": 0,
        },
    )
