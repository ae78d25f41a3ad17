"""What waits for an operator: commands that could not be executed, keys of read models that cannot be applied.

A command's position is `topic/partition/offset`, a key's is `<read model>:<key>`. Both can be retried or skipped.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncpg

from contracts.kernel.records import InboxBatch, OutcomeBatch, ParkedCommand
from contracts.topics import SERVICE_OF, TOPICS
from infra.base.errors import DaybookError, NotDone
from services.kernel.log import clients
from services.kernel.log.clients import NewRecord, deliver
from services.kernel.log.control import read_control
from services.kernel.log.reader import read_to_end
from services.kernel.log.transactions import LARGEST_RECORD
from services.kernel.record.codec import Undecodable, decode, messages_of, topic_of
from services.kernel.record.envelope import Malformed, sent_again, write_headers
from services.projection.engine.database import prepare
from services.projection.engine.parked_keys import NothingParked
from services.projection.engine.read_model import Connection, ReadModel
from services.projection.read_models import READ_MODELS

DELIVERY_SECONDS = 30
Result = TypeVar("Result")


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
        values = [header.value for header in self.command.headers if header.name == name]
        return values[-1].decode(errors="replace") if values else ""

    def content(self) -> str:
        """The command in words, as far as it can be read."""
        try:
            return repr(decode(self.command.value))
        except Undecodable as error:
            return f"not readable ({error}): {self.command.value[:200].hex()}"


def parked_commands(bootstrap: str) -> list[Parked]:
    """The parked commands, oldest first."""
    by_position: dict[str, Parked] = {}
    for topic in (own.parked for own in TOPICS.values()):
        for record in read_to_end(bootstrap, topic):
            position = (record.key() or b"").decode(errors="replace")
            by_position.pop(position, None)
            with suppress(Undecodable):  # a foreign record
                if isinstance(command := record.value() and decode(record.value()), ParkedCommand):
                    by_position[position] = Parked(position, topic, command)
    return sorted(by_position.values(), key=lambda parked: parked.command.recorded_at)


def parked_command(bootstrap: str, position: str) -> Parked:
    """The command at `position`. Raises NotParked."""
    for parked in parked_commands(bootstrap):
        if parked.position == position:
            return parked
    raise NotParked(position)


def retry(bootstrap: str, parked: Parked, operator: str = "") -> None:
    """Send the command unchanged to its input, then remove it from the parked ones. `operator`: the id of who does it,
    which is added to its headers.

    A batch that could not be read is sent message by message, if this version can read it. Raises NotDone where no
    worker would execute it, TimeoutError: then it may be sent twice. Within the retry window it is executed once,
    because its id is the same.
    """
    command, control = parked.command, read_control(bootstrap)
    if control.role.role != "active":
        raise NotDone(f"{control.role.site} is not active: it does not execute commands")
    # The worker skips a command of another epoch without a word. It parks again what has none.
    epoch = parked.header("ce_epoch")
    if epoch.isdecimal() and int(epoch) != control.role.epoch:
        raise NotDone(
            f"{parked.position} was sent in epoch {epoch}, the site is in epoch {control.role.epoch}: its client must "
            "repeat it, or skip it"
        )
    headers = sent_again([(header.name, header.value) for header in command.headers], operator)
    topic = _input_of(control.phase, command)
    records = [NewRecord(topic, command.key, command.value, headers=headers)]
    if parked.header("ce_type") == InboxBatch.TYPE:
        with suppress(Undecodable, Malformed):
            records = [
                NewRecord(topic, message.key or b"", message.value, headers=write_headers(message.metadata))
                for message in messages_of(command.value, headers)
            ]
    _deliver(bootstrap, records)
    skip(bootstrap, parked)


def _input_of(phase: str, command: ParkedCommand) -> str:
    """A command that a worker once wrote to the commands goes to the inbox if the workers have moved there."""
    if phase == "commands":
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
    """Remove the command from the parked ones. Raises TimeoutError."""
    _deliver(bootstrap, [NewRecord(parked.parked_in, parked.position, None)])


def _deliver(bootstrap: str, records: list[NewRecord]) -> None:
    options = {"message.timeout.ms": DELIVERY_SECONDS * 1000, "message.max.bytes": LARGEST_RECORD}
    deliver(clients.writer(bootstrap, options), records, DELIVERY_SECONDS + 5)


def at_key(
    url: str, position: str, act: Callable[[Connection, ReadModel[Any], str], Awaitable[Result]]
) -> Result:
    """What `act` returns for the read model and the key of a position. Raises NothingParked, and like `query`."""
    name, _, key = position.partition(":")
    models = {model.name: model for model in READ_MODELS}
    if name not in models:
        raise NothingParked(f"there is no read model {name}")
    return query(url, lambda connection: act(connection, models[name], key))


def query(url: str, fetch: Callable[[Connection], Awaitable[Result]]) -> Result:
    """The result of `fetch` on a new connection. Raises OSError or asyncpg.PostgresError."""

    async def run() -> Result:
        try:
            connection = await asyncpg.connect(url)
        except TimeoutError as late:  # a command would take it for the broker's
            raise ConnectionError("no connection in time") from late
        try:
            await prepare(connection)
            return await fetch(connection)
        finally:
            await connection.close()

    return asyncio.run(run())
