"""The tables of a lake and its commits, read without a JVM."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from analytics import decoder, money
from analytics.delta import METADATA, Location, table
from analytics.envelope import event_types
from analytics.errors import AnalyticsError
from analytics.events import BrokenStream
from analytics.log_rule import EXCEPTION, NOTHING_FOUND, Exceptions, in_order
from analytics.offsets import Offsets, flat
from contracts import upcasters
from contracts.lock import Lock, load_lock

RAW, EXCEPTIONS, COMMITS, LOST = "events_raw", "exceptions", "commits", "events_lost"
APP = "daybook-lake"
"""Names the writer in each table; with it, Delta stores the number of the last batch."""
OTHER = "other"
"""The partition of `events_raw` for what is no event of a known type."""
DECODING = tuple(Path(module.__file__ or "") for module in (upcasters, decoder, money))


class NoLake(AnalyticsError):
    """There is no lake in the folder, or none that today's code reads."""


class NotRecorded(AnalyticsError):
    """The lake cannot say what was known at a moment."""


@dataclass(frozen=True)
class Commit:
    """One update of the lake: every committed record before `ends` is in its tables, once.

    `log` is the identity of each topic, `batch` the last batch of records, `exceptions_id` names the rows of
    `exceptions` that hold for it, `contracts` the schemas with which the values were decoded."""

    number: int
    time: datetime
    ends: Offsets
    log: Mapping[str, str]
    batch: int
    exceptions_id: str
    contracts: str


def table_name(type_name: str) -> str:
    """`daybook.order.OrderPlaced` → `order_placed`."""
    name = type_name.rpartition(".")[2]
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")


def name_of_log(topics: Mapping[str, str]) -> str:
    """Identifies a log by the ids of its topics."""
    return f"log-{hashlib.sha256(msgspec.json.encode(sorted(topics.items()))).hexdigest()[:8]}"


def copy_of(folder: Location, log: Mapping[str, str]) -> str:
    """Where in the lake the tables are that were copied from this log, by the ids of its topics."""
    return f"{folder}/{name_of_log(log)}"


def last_batch(folder: Location, name: str) -> int:
    """The number of the last batch in a table; 0: none."""
    delta = table(folder, name)
    return (delta and delta.transaction_version(APP)) or 0


def batch_ends(folder: Location, batch: int) -> Offsets:
    """The end offsets of a batch, as its commit to `events_raw` states them. Raises NoLake."""
    raw = table(folder, RAW)
    for entry in raw.history(100) if raw else ():
        content = msgspec.json.decode(entry.get(METADATA) or "{}")
        if content.get("batch") == batch:
            return msgspec.convert(content["ends"], dict[str, dict[int, int]], str_keys=True, strict=False)
    raise NoLake(f"{folder} does not say where its last batch ends: remove it, and copy the log again")


def read_commits(folder: Location) -> list[Commit]:
    """All commits, oldest first. Raises NoLake."""
    delta = table(folder, COMMITS)
    if delta is None:
        raise NoLake(f"no lake in {folder}: `./daybook analytics lake update`")
    if table(folder, RAW) is not None:
        raise NoLake(f"{folder} has the tables of an earlier version: remove it, and copy the log again")
    rows = delta.to_pyarrow_table().sort_by("number").to_pylist()
    return [_commit(row) for row in rows]


def commit_at(commits: Sequence[Commit], moment: datetime) -> Commit:
    """The last commit at or before `moment`, which never changes: a later commit has a later time. Raises NotRecorded
    before the first commit and after the last one."""
    if moment > datetime.now(UTC):
        raise NotRecorded(f"{moment.isoformat()} is still to come: name a time up to now")
    if moment > commits[-1].time:
        last = commits[-1].time.isoformat()
        raise NotRecorded(f"the lake was last updated at {last}: run `./daybook analytics lake update` first")
    earlier = [commit for commit in commits if commit.time <= moment]
    if not earlier:
        raise NotRecorded(f"the lake records what was known since {commits[0].time.isoformat()}")
    return earlier[-1]


def read_exceptions(folder: Location, commit: Commit) -> Exceptions:
    """The records that do not count as of a commit."""
    delta = table(copy_of(folder, commit.log), EXCEPTIONS)
    if delta is None:
        return NOTHING_FOUND
    rows = delta.to_pyarrow_table(filters=[("id", "=", commit.exceptions_id)]).select(EXCEPTION.names)
    return in_order(rows.cast(EXCEPTION))


def check_rows(copy: Location, ends: Offsets, lock: Lock) -> None:
    """Raises BrokenStream unless, before these ends in a copy of the log, the table of each type has as many
    rows as `events_raw` has records of the type."""
    before = rows_before(ends)
    if (raw := table(copy, RAW)) is None:
        return
    every, record = raw.to_pyarrow_dataset(), ds.field("record")
    for type_name in event_types(lock):
        name = table_name(type_name)
        late = (
            (record == OTHER) & ds.field("reason").is_null() & ds.field("schema_id").isin(lock.ids(type_name))
        )
        records = every.count_rows(filter=((record == name) | late) & before)
        own = table(copy, name)
        rows = own.to_pyarrow_dataset().count_rows(filter=before) if own else 0
        if rows != records:
            raise BrokenStream(
                f"{name} has {rows:,} rows, and {RAW} {records:,} records of it: nothing is published. "
                f"Remove {str(copy).rpartition('/')[0]}, and copy the log again: `./daybook analytics lake update`"
            )


def fingerprint(lock: Lock) -> str:
    """Identifies all schemas, and the code that makes rows of values: it changes with every new one."""
    identities = sorted((entry.subject, entry.version, entry.id, entry.fingerprint) for entry in lock.entries)
    spaced = msgspec.json.format(msgspec.json.encode(identities), indent=0)
    return hashlib.sha256(b"\0".join((spaced, *(file.read_bytes() for file in DECODING)))).hexdigest()


def compact(folder: Location) -> None:
    """Makes few files of many in each table. Files that no table uses any more are removed after a week. Raises
    NoLake."""
    for delta in _tables(folder, read_commits(folder)):
        delta.optimize.compact()
        delta.vacuum(dry_run=False)


def _tables(folder: Location, commits: Sequence[Commit]) -> list[DeltaTable]:
    names = RAW, EXCEPTIONS, *map(table_name, event_types(load_lock()))
    copies = {copy_of(folder, commit.log) for commit in commits}
    in_copies = ((copy, name) for copy in copies for name in names)
    every = (table(*own) for own in ((folder, COMMITS), (folder, LOST), *in_copies))
    return [delta for delta in every if delta is not None]


def lake_report(folder: Location) -> str:
    """Shows up to which offsets the lake is complete, and its records by schema version. Raises NoLake."""
    commits, lock = read_commits(folder), load_lock()
    commit = commits[-1]
    copy, lost = copy_of(folder, commit.log), table(folder, LOST)
    raw = table(copy, RAW)
    by_schema = Counter[int | None]()
    if raw is not None:
        few = {"batch_readahead": 1, "fragment_readahead": 1}  # in memory at a time
        # A killed update has left records behind the ends: they do not count yet.
        for batch in raw.to_pyarrow_dataset().to_batches(
            ["schema_id"], filter=rows_before(commit.ends), **few
        ):
            by_schema.update(batch.column("schema_id").to_pylist())
    tables = _tables(folder, commits)
    size = sum(sum(pa.table(delta.get_add_actions())["size_bytes"].to_pylist()) for delta in tables)
    same = "the same as now" if commit.contracts == fingerprint(lock) else "others than now"
    lines = [f"{folder}: {sum(by_schema.values()):,} records, {size / 1e6:,.1f} MB in {len(tables)} tables"]
    lines.append(f"update {commit.number}, at {commit.time.isoformat()}, in {name_of_log(commit.log)}")
    if lost is not None:
        count = lost.to_pyarrow_dataset().count_rows()
        lines.append(f"{count:,} events of a log that was replaced are not in this one: table events_lost")
    lines += [f"complete to {topic}/{number}/{offset}" for topic, number, offset in sorted(flat(commit.ends))]
    lines.append(f"written with contracts {commit.contracts[:12]}, {same}")
    lines += sorted(_counted(schema_id, rows, lock) for schema_id, rows in by_schema.items())
    return "\n".join(lines)


def rows_before(ends: Offsets) -> ds.Expression:
    """Tells whether a row lies before these offsets."""
    topic, number, offset = map(ds.field, ("topic", "partition", "offset"))
    parts = ((topic == name) & (number == n) & (offset < end) for name, n, end in flat(ends))
    return reduce(ds.Expression.__or__, parts)


def _counted(schema_id: int | None, rows: int, lock: Lock) -> str:
    if schema_id is None:
        return f"{rows:>12,} without a schema id"
    try:
        name, version = lock.type_of(schema_id), lock.version(schema_id)
    except KeyError:
        return f"{rows:>12,} of the unknown schema id {schema_id}"
    return f"{rows:>12,} {name} version {version}"


def _commit(row: Mapping[str, Any]) -> Commit:
    ends = msgspec.json.decode(row["ends"], type=dict[str, dict[int, int]])
    return Commit(**{**row, "ends": ends, "log": msgspec.json.decode(row["log"])})
