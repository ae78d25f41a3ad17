"""Where a read model stands: its positions, the decisions that its rows honour, the code that made them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import asyncpg

from services.kernel.log.rule import Journal, Judged
from services.projection.engine.read_model import (
    Connection,
    OtherCode,
    PositionLost,
    ReadModel,
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


class Position(NamedTuple):
    """Where one read model stands in one partition, as far as this process knows.

    `generation` counts how often a rebuild brought rows in that honour other decisions, or that other code
    made.
    """

    next_offset: int
    epoch: int
    generation: int


async def begin(
    connection: Connection, model: ReadModel[Any], places: Iterable[TopicPartition]
) -> dict[TopicPartition, Position]:
    """The positions in these partitions; the beginning of those where the read model never stood.

    Raises `OtherCode`: checked after the positions are read, so that a rebuild in between changes their
    generation.
    """
    own = {place for place in places if place[0] in model.topics}
    await connection.execute(_START, model.name, [topic for topic, _ in own], [number for _, number in own])
    rows = await connection.fetch("SELECT * FROM position WHERE read_model = $1", model.name)
    await require_own_tables(connection, [model])
    return {
        place: Position(row["next_offset"], row["epoch"], row["generation"])
        for row in rows
        if (place := (row["topic"], row["partition"])) in own
    }


async def move(
    connection: Connection,
    name: str,
    before: Mapping[TopicPartition, Position],
    moves: Mapping[TopicPartition, Position],
    keys: Iterable[str],
) -> None:
    """Move the positions and notify which keys change.

    Raises `PositionLost` where they, or their generation, are not those from before.
    """
    moved = await connection.fetchval(
        _MOVE,
        name,
        [topic for topic, _ in moves],
        [partition for _, partition in moves],
        [after.next_offset for after in moves.values()],
        [after.epoch for after in moves.values()],
        [before[place].next_offset for place in moves],
        [before[place].generation for place in moves],
        CHANNEL,
        notification(name, keys),
    )
    if moved != len(moves):
        raise PositionLost(f"{name} {list(moves)}")


async def hold(connection: Connection, model: ReadModel[Any]) -> None:
    """Keep the positions where they are, and the tables in their place, until the transaction's end.

    Raises `OtherCode`.
    """
    await connection.execute("SELECT FROM position WHERE read_model = $1 FOR UPDATE", model.name)
    await require_own_tables(connection, [model])


async def require_own_tables(
    connection: Connection | asyncpg.Pool[Any], models: Iterable[ReadModel[Any]]
) -> None:
    """Raises `OtherCode` where the tables are not those of the code that runs."""
    own = {model.name: model.fingerprint for model in models}
    rows = await connection.fetch(_OTHERS, list(own), list(own.values()))
    if rows:
        names = ", ".join(row["name"] for row in rows)
        raise OtherCode(f"the tables of {names} were made by other code: `./daybook rebuild` makes them anew")


def notification(name: str, keys: Iterable[str]) -> str:
    """Read model and keys that changed, one a line; `*` where they are too many to name."""
    text = "\n".join((name, *keys))
    return text if len(text.encode()) <= _NOTIFY_BYTES else f"{name}\n{EVERY_KEY}"


async def honoured(connection: Connection, model: ReadModel[Any], latest: Journal) -> Journal:
    """The decisions that the rows honour; `latest` itself where these are all that concern them."""
    rows = await connection.fetch(_JUDGED, model.name)
    verdicts = {Judged(*row[:4]): row["verdict"] for row in rows}
    if verdicts == about(model, latest):
        return latest
    return replace(latest, verdicts=verdicts, streams={judged.stream: 1 for judged in verdicts})


def about(model: ReadModel[Any], journal: Journal) -> Mapping[Judged, str]:
    """The verdicts on the streams of a read model."""
    streams = f"{model.stream}/"
    return {
        judged: verdict for judged, verdict in journal.verdicts.items() if judged.stream.startswith(streams)
    }
