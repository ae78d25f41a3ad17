"""The lake and the marts as views of DuckDB: what counts as of the last commit, money as decimals. Without a JVM."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError

from analytics.envelope import event_types
from analytics.lake.tables import (
    COMMITS,
    LOST,
    RAW,
    copy_of,
    read_commits,
    read_exceptions,
    table,
    table_name,
)
from analytics.offsets import flat
from contracts.lock import load_lock

TABLE_ERRORS = (duckdb.Error, DeltaError)
"""What tables raise that are read without Spark."""
POSITION = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
BEFORE_ENDS = """
EXISTS (FROM ends WHERE (topic, partition) = (event.topic, event.partition) AND "offset" > event."offset")
"""
COUNTING = f"""
CREATE VIEW {{name}} AS SELECT * EXCLUDE (readable) FROM {{name}}_rows AS event WHERE readable AND {BEFORE_ENDS}
    AND NOT EXISTS (FROM leaves_out WHERE (topic, partition, "offset") = (event.topic, event.partition, event."offset"))
    AND NOT EXISTS (FROM stops WHERE (topic, partition, entity) = (event.topic, event.partition, event.entity)
        AND "offset" <= event."offset")
"""
CALENDAR = """
CREATE VIEW calendar AS
WITH days AS (SELECT unnest(generate_series(min(occurred_at)::DATE, max(occurred_at)::DATE, INTERVAL 1 DAY))::DATE
    AS day FROM order_placed)
SELECT day, date_trunc('month', day)::DATE AS month, year(day) AS year, quarter(day) AS quarter,
    weekofyear(day) AS week, dayname(day) AS weekday, isodow(day) > 5 AS weekend FROM days
"""


def connect(lake: Path, marts: Path, articles: Path | None = None) -> duckdb.DuckDBPyConnection:
    """A view for each event type, `events_raw`, `commits`, and `events_lost` once a log was replaced; one for each mart
    in the folder `marts`; `calendar`, a row per day from the first order to the last one; and `articles`, if there is a
    CSV file with sku and description. Raises NoLake."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    commit = read_commits(lake)[-1]
    exceptions = read_exceptions(lake, commit)
    _register(connection, "ends", POSITION, list(flat(commit.ends)))
    _register(connection, "leaves_out", POSITION, [record[:3] for record in exceptions.records])
    stops = [(topic, n, at, key) for topic, n, key, at, _ in exceptions.stopped]
    _register(connection, "stops", POSITION | {"entity": pa.string()}, stops)
    copy = copy_of(lake, commit.log)
    for folder, name in ((copy, f"{RAW}_rows"), (lake, COMMITS), (lake, LOST)):
        if (delta := table(folder, name.removesuffix("_rows"))) is not None:
            connection.register(name, delta.to_pyarrow_dataset())
    connection.execute(f"CREATE VIEW {RAW} AS FROM {RAW}_rows AS event WHERE {BEFORE_ENDS}")
    for name in map(table_name, event_types(load_lock())):
        if (delta := table(copy, name)) is not None:
            connection.register(f"{name}_rows", delta.to_pyarrow_dataset())
            connection.execute(COUNTING.format(name=name))
    if table(copy, "order_placed") is not None:
        connection.execute(CALENDAR)
    if articles is not None:
        path = str(articles).replace("'", "''")
        read = f"FROM read_csv('{path}', header = true, all_varchar = true)"
        connection.execute(f"CREATE VIEW articles AS {read}")
    for file in sorted(marts.glob("*/_log.json")):
        files = str(file.parent / "*.parquet").replace("'", "''")
        connection.execute(f"CREATE VIEW \"{file.parent.name}\" AS FROM '{files}'")
    return connection


def _register(
    connection: duckdb.DuckDBPyConnection, name: str, schema: dict[str, Any], rows: Sequence[tuple[Any, ...]]
) -> None:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    connection.register(name, pa.table([*map(list, columns)], schema=pa.schema(schema)))
