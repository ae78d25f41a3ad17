"""Where one service's worker writes commands and outcomes, and which commands it accepts."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from contracts.kernel.records import Outcome, OutcomeBatch
from contracts.topics import INBOXES, SERVICE_OF, TOPICS
from services.kernel import KernelError
from services.kernel.log.control import Phase
from services.kernel.model.process import OutgoingCommand
from services.kernel.record.codec import (
    MOST_MESSAGES,
    MessageGroup,
    OutgoingMessage,
    Record,
    batch_records,
    encode,
    encode_first,
    encoder,
    schema_id,
    single_records,
    topic_of,
)
from services.kernel.record.envelope import SYSTEM, AuthContext, Malformed, Metadata, partition_of, uuid7


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
    if partition_of(key, partitions) != partition:
        raise Malformed(f"{key!r} does not belong to partition {partition}: produce with murmur2")


class Routing:
    """Where one service's worker writes commands and outcomes, and what it accepts on which input.

    `phase` is the site's phase at the beginning of the batch. In `commands` and `inbox` a worker of an earlier
    version may still write to the commands; in `closed` only APIs do.
    """

    def __init__(self, service: str, phase: Phase, counts: Mapping[str, int], epoch: int) -> None:
        """`counts`: how many partitions each topic has."""
        self._service, self.phase, self._counts, self._epoch = service, phase, counts, epoch

    def command_topic(self, type_name: str) -> str:
        """Where a command of this type is written. Raises KeyError."""
        return self._in_phase(topic_of(type_name))

    def reply_topic(self) -> str:
        """Where the entities of this service want outcomes."""
        return self._in_phase(TOPICS[self._service].inbox)

    def routed(self, input_topic: str, metadata: Metadata) -> Metadata:
        """The same, with the address to which the outcome of a record from `input_topic` goes, if to any.

        Of the address in the header only the service, the partition and the key count. An API's command has
        its outcome among the outcomes of this service; only what a worker sent gets a reply.
        """
        if (given := metadata.reply_to) is None:
            return metadata
        if given.partition is not None:
            topic = TOPICS[self._service].outcomes
        elif input_topic in INBOXES or self.phase != "closed":
            topic = self._in_phase(TOPICS[SERVICE_OF[given.topic]].inbox)
        else:
            return metadata._replace(reply_to=None)
        if topic == given.topic:  # almost always: two new tuples are a tenth of a reservation
            return metadata
        return metadata._replace(reply_to=given._replace(topic=topic))

    def require_input(self, topic: str, command: Any) -> None:
        """Raises `Malformed` for a command or an outcome on the other input, KeyError for no command."""
        is_outcome = isinstance(command, OutcomeBatch)
        own = TOPICS[self._service].inbox if is_outcome else topic_of(command.TYPE)
        if topic != own and (topic in INBOXES or self.phase == "closed"):
            raise Malformed(f"{command.TYPE} belongs to {own}")

    def outgoing(
        self,
        key: str,
        commands: Sequence[OutgoingCommand],
        correlation: str,
        cause: str,
        traceparent: str = "",
        auth: AuthContext = SYSTEM,
    ) -> list[MessageGroup]:
        """Commands of the entity `key` to others (or, for a deadline, to itself), by partition of their inbox.

        `auth`: of the event that causes them. Deadlines and retries have none: the service sends them by itself.
        """
        groups: list[MessageGroup] = []
        for kind, alike in groupby(commands, lambda command: type(command.command)):
            topic = self.command_topic(kind.TYPE)
            count, encoded = self._counts[topic], encoder(topic, kind)  # type: ignore[arg-type] # a class is hashable
            reply = ("", "") if SERVICE_OF[topic] == self._service else (self.reply_topic(), key)
            about = kind.TYPE, correlation, cause, traceparent, *reply
            latest: dict[int, list[OutgoingMessage]] = {}
            for command in alike:
                partition = partition_of(command.key, count)
                messages = latest.get(partition)
                if messages is None or len(messages) == MOST_MESSAGES:
                    messages = latest[partition] = []
                    groups.append(MessageGroup(topic, partition, *about, messages, auth))
                value = encoded(command.command)
                messages.append(OutgoingMessage(command.id, command.key, command.tag, value))
        return groups

    def reply(
        self,
        key: str,
        topic: str,
        outcomes: Sequence[Outcome],
        correlation: str,
        traceparent: str,
        auth: AuthContext,
    ) -> MessageGroup:
        """Outcomes for one entity of another aggregate. Their message is its own cause."""
        value = self.encode(topic, OutcomeBatch(tuple(outcomes), self._epoch))
        about = OutcomeBatch.TYPE, correlation, "", traceparent, "", ""
        messages = [OutgoingMessage(uuid7(), key, "", value)]
        return MessageGroup(topic, partition_of(key, self._counts[topic]), *about, messages, auth)

    def encode(self, topic: str, record: Any) -> bytes:
        """Its value, in a version of its schema that every process knows which may read it in this phase."""
        return encode(topic, record) if self.phase == "closed" else encode_first(topic, record)

    def records(self, groups: Sequence[MessageGroup], recorded: int, transaction: str) -> Iterator[Record]:
        """The records of these messages. While workers move to the inbox, some may not know batches yet."""
        sender = Metadata(
            "", "", "", f"daybook/{self._service}", recorded, "", "", self._epoch, transaction=transaction
        )
        write = batch_records if self.phase == "closed" else single_records
        return write(groups, sender)

    def _in_phase(self, topic: str) -> str:
        if self.phase == "commands" and topic in INBOXES:
            return TOPICS[SERVICE_OF[topic]].commands
        return topic
