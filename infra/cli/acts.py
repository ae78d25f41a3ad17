"""`daybook journal`: what operators did. Every command with which one decides something records it here (ADR 32)."""

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Annotated
from uuid import uuid4

import typer
from confluent_kafka import KafkaException

from analytics.terminal import Table
from contracts.kernel.records import ActOutcome, OperatorActed
from infra.base.errors import DaybookError, NotDone
from infra.base.files import kept_secret
from infra.base.settings import StackSettings
from infra.cli.inspect import Kafka, broker_at
from infra.cli.output import fail, notes, results
from infra.dr.plan import Show, both_sites, controls, newest_active
from infra.dr.topic_copy import NotCopied
from infra.log.control import PATIENT_SECONDS, READ_SECONDS
from infra.stack.platform import platform_of
from infra.stack.site import Site, home_settings
from services.kernel.log.control import JOURNAL, read_control, write_journal
from services.kernel.log.reader import read_to_end
from services.kernel.log.transactions import OwnershipLost
from services.kernel.record.codec import Undecodable, decode
from services.kernel.record.envelope import format_time, now_micros

app = typer.Typer()
Why = Annotated[
    str, typer.Option("--why", metavar="TEXT", help="Why. It is stored for ever: no personal data.")
]
# Of an act that gives something up.
ReasonOption = Annotated[str, typer.Option("--reason", "--why", help="Stored for ever: no personal data.")]
GIVEN_UP = "given up by an operator"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,63}")
FAILURES = (DaybookError, TimeoutError, KafkaException, OwnershipLost)


def operator_id() -> str:
    """The random id of whoever runs this command: DAYBOOK_OPERATOR, or one that the stack keeps for each user of this
    machine. It is never the user's name, because the journal is kept for ever."""
    if given := os.environ.get("DAYBOOK_OPERATOR"):
        if not _ID.fullmatch(given):
            fail("DAYBOOK_OPERATOR is no id: up to 64 letters, digits and ._~-")
        return given
    folder = home_settings(StackSettings()).home / "identity"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return kept_secret(folder / "operators" / str(os.getuid()), uuid4().hex)


@contextmanager
def recorded(act: str, subject: str, why: str = "", kafka: str = "") -> Iterator[None]:
    """Records an operator's act when it has ended, done or failed, at the site that is active then. `subject`: what it
    is done to, by its id. `kafka`: the broker at which it is done, if it is at one."""

    def write(outcome: ActOutcome, seconds: float) -> None:
        acted = OperatorActed(operator_id(), act, subject, why, outcome, now_micros())
        write_journal(_active(kafka, seconds), [(f"act/{acted.who}", acted)])

    try:
        yield
    except BaseException:
        with suppress(*FAILURES):  # what failed is the message
            write("failed", READ_SECONDS)
        raise
    try:
        write("done", PATIENT_SECONDS)
    except FAILURES as error:
        fail(f"`{act}` is done, but {JOURNAL} has no record of it: {error}")


@contextmanager
def continued(act: str, subject: str, why: str, kafka: str = "") -> Iterator[Show]:
    """A recorded act of several steps, which goes on where it stopped when its command is repeated. Yields what shows
    each step."""
    try:
        with recorded(act, subject, why, kafka), notes.status("") as status:
            yield status.update
    except (KafkaException, NotCopied, OwnershipLost, TimeoutError, OSError) as reason:
        fail(f"{reason}; the same command continues where this one stopped")


def only_command(settings: StackSettings, command: str) -> AbstractContextManager[None]:
    """Nothing else changes the sites meanwhile. Raises OtherCommand, and NotDone where there is only one site."""
    both_sites(settings)
    return Site(home_settings(settings)).journal.sole_change(command)


def _active(kafka: str, seconds: float) -> str:
    """The broker of the active site: what is written at a passive one would not be mirrored. Raises NotDone where none
    responds within so many seconds."""
    if kafka and read_control(kafka).role.role == "active":
        return kafka
    sites = platform_of(StackSettings()).sites()
    if (name := newest_active(controls(sites, seconds))) is None:
        raise NotDone("no site is active")
    return sites[name].bootstrap


@app.command("journal")
def journal(kafka: Kafka = "") -> None:
    """Show what operators did: when, who by their random id, what, why, and how it ended."""
    table = Table("at", "who", "what", "of", "why", "outcome", whole=True)
    try:
        for record in read_to_end(broker_at(kafka), JOURNAL):
            with suppress(Undecodable):
                if isinstance(acted := decode(record.value()), OperatorActed):
                    at = format_time(acted.acted_at)[:19] + "Z"
                    table.add_row(at, acted.who, acted.act, acted.subject, acted.why, acted.outcome)
    except (KafkaException, TimeoutError) as error:
        fail(f"the broker does not respond ({error}): is it running? `./daybook up` starts the stack")
    if table.rows:
        results.print(table)
    else:
        notes.print("No operator has done anything that is recorded.")
