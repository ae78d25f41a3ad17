"""A producer that writes each event to both sites, and a consumer that takes it once.

For sources outside the shop, for example a till, that must not wait for a failover. The topic is not mirrored.
It is safe for the same reason as the shop's log: each entity has one writer, which counts its versions.
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
    """Two events have the same version: the entity has two writers, and neither is right."""


class BothSites:
    """Sends each event to every site with the same id and version, and keeps what a site has not received.

    `bootstraps` are addresses by site. An unreachable site delays for `seconds` and loses no event: the caller
    sends its missing events again at any time. A record that was stored but not confirmed then arrives
    twice; its version shows it.
    """

    def __init__(self, bootstraps: Mapping[str, str], topic: str, seconds: float = 10.0) -> None:
        self._topic, self._seconds = topic, seconds
        self._producers = {site: _producer(address, seconds) for site, address in bootstraps.items()}
        self._owed: dict[str, list[Event]] = {site: [] for site in bootstraps}

    def send(self, event: Event) -> None:
        """Queues the event for all sites."""
        for site in self._producers:
            self._send(site, event)

    def settle(self) -> dict[str, list[Event]]:
        """Waits until each site has received or missed every event; returns the missed ones by site, in order.

        No site has accepted an event that *every* site missed: its source must keep it.
        """
        for producer in self._producers.values():
            producer.flush(2 * self._seconds)
        return {
            site: sorted(events, key=lambda event: event.metadata.version)
            for site, events in self._owed.items()
        }

    def send_owed(self) -> None:
        """Queues each site's missing events again."""
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

    `versions` come from the consumer's own store: write them in one transaction with the effects, as every
    read model does. An event that arrives early waits in memory: store positions only while none waits.
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
        """Number of events whose predecessor no site has delivered yet. If one stays, the stream has a gap."""
        return sum(map(len, self._waiting.values()))

    def take(self, event: Event) -> Iterable[Event]:
        """The events to apply now: none, this event, or this event and those that waited for it.

        Raises TwoWriters if the entity's newest version, or a waiting one, has another event's id.
        """
        entity, version = event.metadata.subject, event.metadata.version
        last, last_id = self._taken.get(entity, (0, ""))
        waiting = self._waiting.setdefault(entity, {})
        known_id = last_id if version == last else waiting[version].metadata.id if version in waiting else ""
        if known_id and known_id != event.metadata.id:
            raise TwoWriters(f"{entity} version {version}: {event.metadata.id} and {known_id}")
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
    """Raises Malformed if the headers are not a valid envelope."""
    metadata: Metadata = read_headers(record.headers())
    return Envelope(metadata, record.value() or b"")


def _producer(bootstrap: str, seconds: float) -> Producer:
    return clients.writer(
        bootstrap,
        {
            "message.timeout.ms": int(seconds * 1000),
        },
    )
