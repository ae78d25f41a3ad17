"""Commands that their worker could not execute; an operator tries again or gives up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message

from contracts.kernel.records import OutcomeBatch, ParkedCommand
from contracts.topics import SERVICE_OF, TOPICS
from infra.base.errors import DaybookError
from infra.log.topics import SERVICES
from services.kernel.log import clients
from services.kernel.log.control import read_control
from services.kernel.log.reader import partitions_of, read_to_end
from services.kernel.log.transactions import LARGEST_RECORD
from services.kernel.record.codec import Undecodable, decode
from services.kernel.record.registry import topic_of

DELIVERY_SECONDS = 30


class NotParked(DaybookError, KeyError):
    """No command is parked under this position."""


@dataclass(frozen=True)
class Parked:
    """`position` is topic/partition/offset: the record's key in `<service>.parked`."""

    position: str
    parked_in: str
    command: ParkedCommand

    def header(self, name: str) -> str:
        """One header of the command as text; empty where it has none."""
        found = [header.value for header in self.command.headers if header.name == name]
        return found[-1].decode(errors="replace") if found else ""

    def content(self) -> str:
        """The command in words, as far as it can be read."""
        try:
            return repr(decode(self.command.value))
        except Undecodable as error:
            return f"not readable ({error}): {self.command.value[:200].hex()}"


def parked_commands(bootstrap: str, services: Sequence[str] = SERVICES) -> list[Parked]:
    """What is parked now, oldest first."""
    found: dict[str, Parked] = {}
    for topic in (TOPICS[service].parked for service in services):
        starts = dict.fromkeys(partitions_of(bootstrap, topic), 0)
        for record in read_to_end(bootstrap, topic, starts):
            position = (record.key() or b"").decode()
            found.pop(position, None)
            if record.value() is not None:
                found[position] = Parked(position, topic, decode(record.value()))
    return sorted(found.values(), key=lambda parked: parked.command.recorded_at)


def parked_command(bootstrap: str, position: str) -> Parked:
    """The one at `position`. Raises `NotParked`."""
    for parked in parked_commands(bootstrap):
        if parked.position == position:
            return parked
    raise NotParked(position)


def retry(bootstrap: str, parked: Parked) -> None:
    """Send the command again as it was, to its input, then forget it here.

    Raises KafkaException: it may be sent twice then, and is executed once, for its id is the same.
    """
    command = parked.command
    headers = [(header.name, header.value) for header in command.headers]
    _deliver(bootstrap, _input_of(bootstrap, command), command.key, command.value, headers)
    skip(bootstrap, parked)


def _input_of(bootstrap: str, command: ParkedCommand) -> str:
    """What a worker wrote to the commands goes to the inbox where workers have moved there."""
    if read_control(bootstrap).phase == "commands":
        return command.topic
    try:
        record = decode(command.value)
        own = (
            TOPICS[SERVICE_OF[command.topic]].inbox
            if isinstance(record, OutcomeBatch)
            else topic_of(record.TYPE)
        )
    except (Undecodable, KeyError):
        return command.topic
    return own if own in TOPICS[SERVICE_OF[command.topic]].inputs else command.topic


def skip(bootstrap: str, parked: Parked) -> None:
    """Forget the command. Raises KafkaException."""
    _deliver(bootstrap, parked.parked_in, parked.position.encode(), None, [])


def _deliver(
    bootstrap: str, topic: str, key: bytes, value: bytes | None, headers: list[tuple[str, bytes]]
) -> None:
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = clients.writer(
        bootstrap,
        {"message.timeout.ms": DELIVERY_SECONDS * 1000, "message.max.bytes": LARGEST_RECORD, "log_level": 3},
    )
    producer.produce(topic, value, key, headers=headers, on_delivery=delivered)
    producer.flush(DELIVERY_SECONDS + 5)
    if failures:
        raise KafkaException(failures[0])
