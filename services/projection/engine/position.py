"""The state of a read model: its positions, the decisions that its rows honour, the code that made them.

A position outside the log's offsets shows that the log was replaced or truncated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import asyncpg

from services.kernel.log.reader import high_watermarks
from services.kernel.log.rule import Journal, Judged
from services.projection.engine.read_model import (
    Connection,
    OtherCode,
    PositionLost,
    ReadModel,
    Stopped,
    TopicPartition,
)

CHANNEL = "daybook"
EVERY_KEY = "*"
_NOTIFY_BYTES = 7000  # PostgreSQL's limit is 8000

_MOVE = """
WITH moved AS (
    UPDATE position p SET next_offset = n.next_offset, epoch = n.epoch, applied_at = now()
    FROM unnest($2::text[], $3::int[], $4::bigint[], $5::int[], $6::bigint[], $7::int[])
        AS n(topic, partition, next_offset, epoch, expected, generation)
    WHERE p.read_model = $1 AND p.topic = n.topic AND p.partition = n.partition
        AND p.next_offset = n.expected AND p.generation = n.generation
    RETURNING 1)
SELECT count(*), pg_notify($8, $9) FROM moved"""
_START = """
INSERT INTO position (read_model, topic, partition)
SELECT $1, n.topic, n.partition FROM unnest($2::text[], $3::int[]) AS n(topic, partition)
ON CONFLICT DO NOTHING"""
JUDGE = """
INSERT INTO judged (read_model, stream, version, event_id, digest, verdict) VALUES ($1, $2, $3, $4, $5, $6)"""
# The fingerprint is the schema's comment: it goes with the tables when the schema is renamed.
_OTHERS = """
SELECT name FROM unnest($1::text[], $2::text[]) AS own(name, fingerprint)
WHERE obj_description(to_regnamespace(name), 'pg_namespace') IS DISTINCT FROM fingerprint"""
_JUDGED = "SELECT stream, version, event_id, digest, verdict FROM judged WHERE read_model = $1"


class LogReplaced(Stopped):
    """A position lies outside the log: the rows were made from another log, or the log was truncated."""

    def __init__(self, positions: str) -> None:
        super().__init__(
            f"{positions}: restore the log that the read models were made from; "
            "or, if this one is to be kept, start on an empty database, which is filled from the log"
        )


class Position(NamedTuple):
    """The position of one read model in one partition, as far as this process knows. `generation` counts the rebuilds
    whose rows honour other decisions or come from other code."""

    next_offset: int
    epoch: int
    generation: int


async def begin(
    connection: Connection, model: ReadModel[Any], tps: Iterable[TopicPartition]
) -> dict[TopicPartition, Position]:
    """Returns the positions in these partitions; a new partition starts at its beginning. Raises `OtherCode`. The
    check follows the read, so that a rebuild in between changes the generation."""
    own = {tp for tp in tps if tp[0] in model.topics}
    await connection.execute(_START, model.name, [topic for topic, _ in own], [number for _, number in own])
    rows = await connection.fetch("SELECT * FROM position WHERE read_model = $1", model.name)
    await require_own_tables(connection, [model])
    return {
        tp: Position(row["next_offset"], row["epoch"], row["generation"])
        for row in rows
        if (tp := (row["topic"], row["partition"])) in own
    }


async def move(
    connection: Connection,
    name: str,
    before: Mapping[TopicPartition, Position],
    moves: Mapping[TopicPartition, Position],
    keys: Iterable[str],
) -> None:
    """Moves the positions and notifies which keys change. Raises `PositionLost` if the positions or their generations
    have changed."""
    moved = await connection.fetchval(
        _MOVE,
        name,
        [topic for topic, _ in moves],
        [partition for _, partition in moves],
        [after.next_offset for after in moves.values()],
        [after.epoch for after in moves.values()],
        [before[tp].next_offset for tp in moves],
        [before[tp].generation for tp in moves],
        CHANNEL,
        notification(name, keys),
    )
    if moved != len(moves):
        raise PositionLost(f"{name} {list(moves)}")


async def lock_positions(connection: Connection, model: ReadModel[Any]) -> None:
    """Locks the positions and the tables until the end of the transaction. Raises `OtherCode`."""
    await connection.execute("SELECT FROM position WHERE read_model = $1 FOR UPDATE", model.name)
    await require_own_tables(connection, [model])


async def require_own_tables(
    connection: Connection | asyncpg.Pool[Any], models: Iterable[ReadModel[Any]]
) -> None:
    """Raises `OtherCode` if other code made the tables."""
    own = {model.name: model.fingerprint for model in models}
    rows = await connection.fetch(_OTHERS, list(own), list(own.values()))
    if rows:
        names = ", ".join(row["name"] for row in rows)
        raise OtherCode(
            f"the tables of {names} were made by other code: `./daybook rebuild` builds them again"
        )


def notification(name: str, keys: Iterable[str]) -> str:
    """Returns the read model and its changed keys, one per line; `*` if there are too many."""
    text = "\n".join((name, *keys))
    return text if len(text.encode()) <= _NOTIFY_BYTES else f"{name}\n{EVERY_KEY}"


async def honoured(connection: Connection, model: ReadModel[Any], latest: Journal) -> Journal:
    """Returns the decisions that the rows honour; `latest` itself if the rows honour all that concern them."""
    rows = await connection.fetch(_JUDGED, model.name)
    verdicts = {Judged(*row[:4]): row["verdict"] for row in rows}
    if verdicts == about(model, latest):
        return latest
    return replace(latest, verdicts=verdicts, streams={judged.stream: 1 for judged in verdicts})


def about(model: ReadModel[Any], journal: Journal) -> Mapping[Judged, str]:
    """Returns the verdicts on the streams of a read model."""
    streams = f"{model.stream}/"
    return {
        judged: verdict for judged, verdict in journal.verdicts.items() if judged.stream.startswith(streams)
    }


def require_positions_in_log(kafka: str, positions: Mapping[str, Mapping[TopicPartition, int]]) -> None:
    """Raises `LogReplaced` if a read model's position lies beyond the end. Blocks. Otherwise the projection would
    wait until new records reach that position."""
    ends = _ends(kafka, {partition for offsets in positions.values() for partition in offsets})
    for name, offsets in positions.items():
        for tp, position in offsets.items():
            if position > ends[tp]:
                where = f"{name} is at position {position} of {tp[0]}/{tp[1]}"
                raise LogReplaced(f"{where}, which ends at {ends[tp]}")


def log_truncated(positions: Mapping[TopicPartition, int]) -> LogReplaced:
    """Returns the error for positions before the log's first offset."""
    lost = (f"{topic}/{number}: position {offset}" for (topic, number), offset in positions.items())
    return LogReplaced(f"{', '.join(lost)} is no longer in the log")


def _ends(kafka: str, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns high watermarks: an open transaction delays the last stable offset, which is no loss."""
    partitions: dict[str, list[int]] = {}
    for topic, partition in tps:
        partitions.setdefault(topic, []).append(partition)
    return {
        (topic, partition): end
        for topic, numbers in partitions.items()
        for partition, end in high_watermarks(kafka, topic, numbers).items()
    }
