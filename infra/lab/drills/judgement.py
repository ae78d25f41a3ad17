"""The one judge of every drill: the raw log against its invariants, lost commands, repeats, tokens, equal sites."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import asyncpg
import httpx

from infra.base.waiting import TooLate, wait_until
from infra.dr.comparison import compare
from infra.dr.export import MONEY, money
from infra.dr.losses import NONE_LOST, Loss, LostRecord, Report, TornTransaction
from infra.lab.checker.evidence import Acknowledged, Evidence, read_evidence, read_seen, read_sent
from infra.lab.checker.invariants import check
from infra.lab.drills.drill import Course, DrillFailed
from infra.lab.drills.pair import Pair, Sides
from infra.lab.drills.report import DrillReport
from infra.lab.load.clients import ACCEPTED, Api, CommandResponse, Urls
from infra.lab.load.load import repeat
from infra.log.event_log import foreign_records
from infra.stack.site import Site
from services.kernel.log.rule import FIRST_EPOCH
from services.projection.read_models import READ_MODELS

INVARIANTS = {
    "I1": "what was acknowledged is logged",
    "I2": "one command, one effect, one outcome",
    "I3": "versions without gaps, ids once",
    "I5": "nothing of an aborted transaction is visible",
    "I6": "transactions whole",
    "I7": "stock adds up at every prefix",
    "I8": "money is conserved",
    "I9": "conversations end",
    "I10": "one writer, epochs only rise",
}
REPEATED, REPEAT_SECONDS = 40, 60.0
NO_FAILOVER = "there was no failover"
TOKENS, TOKEN_SECONDS = 6, 30.0
EQUAL_SECONDS = 60.0
# Every table of the read models, with the columns of its primary key; the catalogue shows them to every role.
_TABLES = """
SELECT conrelid::regclass::text, array_agg(attname::text ORDER BY array_position(conkey, attnum))
FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = ANY(conkey)
WHERE contype = 'p' AND connamespace::regnamespace::text = ANY($1) GROUP BY 1 ORDER BY 1"""


def for_checker(response: CommandResponse) -> Acknowledged:
    kind, code = (ACCEPTED, "") if response.accepted else ("refused", response.outcome)
    ids = (response.event_id,) if response.event_id else ()
    return Acknowledged(response.command_id, response.entity, kind, response.version, ids, code)


def judge(
    report: DrillReport,
    bootstrap: str,
    responses: Sequence[CommandResponse],
    lost: Report | None = None,
    database_url: str | None = None,
    torn: Sequence[TornTransaction] = (),
) -> None:
    """Check the invariants over the log at rest, one row each; what `lost` lists is left out of I1, I2 and I6.

    `torn` is left out of I6 where there is no such report. Without the `database_url` of the read models, I5 covers
    only what workers executed.
    """
    given_up = {loss.command_id for loss in lost.losses} if lost else set()
    partial = {transaction.id for transaction in (lost.torn_transactions if lost else torn)}
    kept = [for_checker(response) for response in responses if response.command_id not in given_up]
    sent = read_sent(bootstrap)
    report.figures["commands, outcomes and answers paired with events"] = len(sent)
    seen = read_seen(database_url) if database_url else set()
    violations = [
        violation
        for violation in check(Evidence(read_evidence(bootstrap), kept, seen, sent, at_rest=True))
        if not (violation.invariant == "I6" and violation.where in partial)
    ]
    for name, about in INVARIANTS.items():
        broken = [f"{row.where}: {row.what}" for row in violations if row.invariant == name]
        report.none(f"{name} broken: {about}", broken)
    # A writer of an epoch that is over, or in a partition that is not its own, would appear here.
    report.none("foreign records in the log", list(map(str, foreign_records(bootstrap))))


def not_logged(bootstrap: str, responses: Iterable[CommandResponse]) -> list[str]:
    """Acknowledged commands whose event is not in the log."""
    present = event_epochs(bootstrap)
    return [
        response.command_id
        for response in responses
        if response.event_id and response.event_id not in present
    ]


def event_epochs(bootstrap: str) -> dict[str, int]:
    """The epoch of each event in the log, by event id."""
    return {recorded.metadata.id: recorded.metadata.epoch for recorded in read_evidence(bootstrap)}


def check_losses(
    report: DrillReport,
    bootstrap: str,
    responses: Iterable[CommandResponse],
    before_epoch: int,
    lost: Report,
    sent: Collection[str],
) -> list[CommandResponse]:
    """Compare the list of losses with the clients' own responses and the new site's log, in both directions.

    Returns the acknowledged commands of epochs before `before_epoch` whose event the log does not have.
    """
    present = event_epochs(bootstrap)
    old = [
        response
        for response in responses
        if response.accepted and response.event_id and response.epoch < before_epoch
    ]
    gone = [response for response in old if response.event_id not in present]
    listed = {record.event_id for loss in lost.acknowledged for record in loss.events}
    unlisted = [response.command_id for response in gone if response.event_id not in listed]
    gone_ids = {response.command_id for response in gone}
    kept_ids = {response.command_id for response in old} - gone_ids
    # Clients neither lost them nor still wait for their outcome.
    unexplained = [
        loss.command_id
        for loss in lost.acknowledged
        if loss.events and (loss.command_id in kept_ids or loss.command_id not in gone_ids.union(sent))
    ]
    mirrored = [
        record.event_id for loss in lost.losses for record in loss.events if record.event_id in present
    ]
    report.none("listed as lost, yet in the new site's log", mirrored)
    report.figures["acknowledged commands lost"] = len(gone)
    report.none("acknowledged, lost and not in the report", unlisted)
    report.none("in the report, yet not lost", unexplained)
    report.lost = [_described(loss) for loss in lost.acknowledged if loss.events]
    return gone


def check_nothing_lost(report: DrillReport, pair: Pair, folder: Path) -> None:
    """The negative control: where the last switch lost nothing, or there was none, `failover report` lists nothing and
    says so."""
    if pair.roles()[2] == FIRST_EPOCH:
        try:
            printed = pair.run("failover", "report")
        except DrillFailed as refused:
            printed = str(refused)
        report.promise(
            "what it says", NO_FAILOVER, printed.strip().rpartition("\n")[2], NO_FAILOVER in printed
        )
        return
    lost = pair.losses(folder / "nothing-lost.json")
    listed = [loss.command_id for loss in lost.losses]
    listed += [transaction.id for transaction in lost.torn_transactions]
    listed += [conversation.order_id for conversation in lost.conversations]
    listed += [f"{part.topic}/{part.partition} from {part.first}: {part.reason}" for part in lost.unproven]
    report.none("named by `failover report`, where nothing was lost", listed)
    report.promise("what it says", NONE_LOST, lost.verdict, lost.verdict == NONE_LOST)


def _described(loss: Loss) -> str:
    kind = loss.command_type.rpartition(".")[2] or "a command that retention has removed"
    events = ", ".join(map(_event, loss.events))
    again = f"; now {loss.again.kind} again at version {loss.again.version}" if loss.again else ""
    return f"{loss.at} {kind} {loss.command_id} of {loss.subject}{_amounts(loss)}: {events}{again}"


def _amounts(loss: Loss) -> str:
    """Money in its currency and units, in brackets; empty where there are none."""
    amounts = [f"{name} {money(loss, name)}" for name in MONEY if name in loss.amounts]
    units = [f"{loss.amounts[name]} units" for name in ("units", "quantity") if name in loss.amounts]
    return f" ({', '.join([*amounts, *units])})" if amounts or units else ""


def _event(record: LostRecord) -> str:
    position = f"{record.topic}/{record.partition}/{record.offset}"
    return f"{record.type.rpartition('.')[2]} {record.event_id} at {position}"


def check_repeats(
    course: Course[Sides], responses: Sequence[CommandResponse], gone: Collection[str] = ()
) -> list[CommandResponse]:
    """Repeat at the other site the newest commands from before the switch, and every second lost command twice.

    `gone` are the ids of lost commands. What crossed gets its recorded outcome; what did not is executed once. Returns
    the responses.
    """
    report, sides, sent, site = course.report, course.rig, course.load.sent, course.rig.other.name
    before = [response for response in responses if response.site != site and response.epoch <= sides.epoch]
    crossed = [response for response in before if response.command_id not in gone][-REPEATED:]
    again = [response for response in before if response.command_id in gone][::2]
    same, first, second = (
        asyncio.run(repeat(sides.urls, site, [sent[old.command_id] for old in group], REPEAT_SECONDS))
        for group in (crossed, again, again)
    )
    report.none("repeats of what crossed, answered otherwise", _different(crossed, same))
    report.none("repeats of what was lost, executed twice", _different(first, second))
    report.figures["repeats of what crossed"] = len(crossed)
    report.figures["repeats of what was lost"] = len(again)
    return [*same, *first, *second]


def _different(before: Sequence[CommandResponse], after: Sequence[CommandResponse]) -> list[str]:
    return [
        f"{old.kind} of {old.entity}: {_meaning(old)}, then {_meaning(new)}"
        for old, new in zip(before, after, strict=True)
        if _meaning(old) != _meaning(new)
    ]


def _meaning(response: CommandResponse) -> tuple[str, int, str]:
    return response.outcome, response.version, response.event_id


def check_tokens(
    report: DrillReport,
    urls: Urls,
    responses: Iterable[CommandResponse],
    lost: Report | None = None,
    newest: int = TOKENS,
) -> None:
    """An old token is still valid, unless its write was lost: then the API responds with 410."""
    lost_ids = {record.event_id for loss in lost.losses for record in loss.events} if lost else set()
    orders = [response for response in responses if response.event_id and response.kind != "delivery"]
    kept = [response for response in orders if response.event_id not in lost_ids][-newest:]
    gone = [response for response in orders if response.event_id in lost_ids][:newest]
    wrong = []
    expected = [*((response, 200) for response in kept), *((response, 410) for response in gone)]
    query, caller = urls[Api.QUERY], urls.caller
    with httpx.Client(base_url=query, timeout=TOKEN_SECONDS, trust_env=False, auth=caller) as client:
        for response, status in expected:
            read = client.get(
                f"/orders/{response.entity}", headers={"Consistency-Token": response.token}
            ).status_code
            if read != status:
                wrong.append(f"{response.entity} version {response.version}: {read}, not {status}")
    report.none(f"tokens of {len(kept)} kept and {len(gone)} lost writes, answered wrongly", wrong)


def check_equal(report: DrillReport, active: Site, passive: Site) -> None:
    """Both logs record by record, both sites' read models key by key; the mirror must be caught up."""
    logs = compare(active.bootstrap, passive.bootstrap)
    report.none(f"partitions that differ, of {logs.records:,} records mirrored", list(logs.different))
    try:
        keys, different = wait_until(
            lambda: asyncio.run(_differences(active, passive)),
            "the read models are equal",
            EQUAL_SECONDS,
            enough=lambda seen: not seen[1],
            every=0.5,
        )
    except TooLate as late:  # the passive site's read models follow the mirror
        keys, different = late.last
    report.none(f"rows of read models that differ, of {keys:,}", different if keys else ["none was compared"])


async def _differences(active: Site, passive: Site) -> tuple[int, list[str]]:
    """The number of keys, and those that differ or are at only one site."""
    here, there = await asyncio.gather(digests(active.database_url), digests(passive.database_url))
    keys = here.keys() | there.keys()
    return len(keys), sorted(key for key in keys if here.get(key) != there.get(key))


async def digests(url: str) -> dict[str, str]:
    """Every row of the read models: `table key` → digest of the row."""
    connection = await asyncpg.connect(url, timeout=10)
    try:
        rows: dict[str, str] = {}
        for table, key in await connection.fetch(_TABLES, [model.name for model in READ_MODELS]):
            query = f"SELECT concat_ws('/', {', '.join(key)}), md5(t::text) FROM {table} t"
            rows |= {f"{table} {name}": digest for name, digest in await connection.fetch(query)}
        return rows
    finally:
        await connection.close()
