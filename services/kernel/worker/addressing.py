"""Where commands and outcomes go, and whether a command stands where it belongs: what does not is parked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from contracts.kernel.records import OutcomeBatch
from contracts.topics import INBOXES, SERVICE_OF, TOPICS
from services.kernel.errors import KernelError
from services.kernel.log.control import Phase
from services.kernel.log.rule import home_of
from services.kernel.record.envelope import Malformed, Metadata, ReplyAddress
from services.kernel.record.registry import schema_id, topic_of


class LaterEpoch(KernelError):
    """Somebody writes in a later site epoch: this worker's time is over."""


def later_epoch(claimed: int, own: int, site: int) -> LaterEpoch | Malformed:
    """What a command of an epoch later than the worker's own means, where the site is in epoch `site` now."""
    about = f"a command of epoch {claimed}, this worker writes in {own}"
    return LaterEpoch(about) if site >= claimed else Malformed(about)


def answerable(metadata: Metadata) -> Metadata:
    """The same. Raises `Malformed`: an outcome for a place where none can be written would stop the slot."""
    if (address := metadata.reply_to) is not None:
        try:
            schema_id(address.topic, OutcomeBatch.TYPE)
        except KeyError:
            raise Malformed(f"no outcomes are written to {address.topic!r}") from None
        if address.partition is None and not address.key:
            raise Malformed("an outcome needs a partition or a key")
    return metadata


def require_address(partition: int, partitions: int, key: str, metadata: Metadata) -> None:
    """Raises `Malformed`: a foreign producer with another partitioner would give one entity two writers."""
    if metadata.subject != key:
        raise Malformed(f"the key is {key!r}, the subject {metadata.subject!r}")
    if home_of(key, partitions) != partition:
        raise Malformed(f"{key!r} does not belong to partition {partition}: produce with murmur2")


class Routing:
    """Where one service's worker writes commands and outcomes, and what it accepts on which input.

    `phase` returns the site's phase as it is now. In `commands` and `inbox` a worker of an earlier version may
    still write to the commands; in `closed` only APIs do.
    """

    def __init__(self, service: str, phase: Callable[[], Phase]) -> None:
        self._service, self._phase = service, phase

    def command_topic(self, type_name: str) -> str:
        """Where a command of this type is written. Raises KeyError."""
        return self._in_phase(topic_of(type_name))

    def reply_address(self, tag: str, key: str) -> ReplyAddress:
        """Where the entity `key` of this service wants outcomes."""
        return ReplyAddress(self._in_phase(TOPICS[self._service].inbox), None, tag, key)

    def routed(self, input_topic: str, metadata: Metadata) -> Metadata:
        """The same, with the address to which the outcome of a record from `input_topic` goes, if to any.

        Of the address in the header only the service, the partition and the key count. An API's command has
        its outcome among the outcomes of this service; only what a worker sent gets a reply.
        """
        if (wanted := metadata.reply_to) is None:
            return metadata
        address = None
        if wanted.partition is not None:
            address = wanted._replace(topic=TOPICS[self._service].outcomes)
        elif input_topic in INBOXES or self._phase() != "closed":
            address = wanted._replace(topic=self._in_phase(TOPICS[SERVICE_OF[wanted.topic]].inbox))
        return metadata._replace(reply_to=address)

    def require_input(self, topic: str, command: Any) -> None:
        """Raises `Malformed` for a command or an outcome on the other input, KeyError for no command."""
        is_outcome = isinstance(command, OutcomeBatch)
        own = TOPICS[self._service].inbox if is_outcome else topic_of(command.TYPE)
        if topic != own and (topic in INBOXES or self._phase() == "closed"):
            raise Malformed(f"{command.TYPE} belongs to {own}")

    def _in_phase(self, topic: str) -> str:
        if self._phase() == "commands" and topic in INBOXES:
            return TOPICS[SERVICE_OF[topic]].commands
        return topic
