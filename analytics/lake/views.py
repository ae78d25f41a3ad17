"""The lake and the marts as views of DuckDB: what counts as of the last commit, money as decimals. Without a JVM."""

from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from analytics.delta import Location, table
from analytics.envelope import POSITION, event_types
from analytics.lake.tables import COMMITS, LOST, RAW, copy_of, read_commits, read_exceptions, table_name
from analytics.log_rule import EXCEPTION, stops
from analytics.offsets import flat
from contracts.lock import load_lock

TABLE_ERRORS = (duckdb.Error, DeltaError)
"""What tables raise that are read without Spark."""
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
    AS day FROM ({dates}))
SELECT day, date_trunc('month', day)::DATE AS month, year(day) AS year, quarter(day) AS quarter,
    weekofyear(day) AS week, dayname(day) AS weekday, isodow(day) > 5 AS weekend FROM days
"""


def connect(
    lake: Location, marts: Mapping[str, DeltaTable], articles: Path | None = None
) -> duckdb.DuckDBPyConnection:
    """A view for each event type that has occurred, `events_raw`, `commits`, and `events_lost` once a log was replaced;
    one for each of `marts`; `calendar`, a row per day from the first event to the last one; and `articles`, if there is
    a CSV file with sku and description. Raises NoLake."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    connection.execute("SET TimeZone = 'UTC'")
    commit = read_commits(lake)[-1]
    exceptions = read_exceptions(lake, commit)
    ends = [dict(zip(POSITION, end, strict=True)) for end in flat(commit.ends)]
    connection.register("ends", pa.Table.from_pylist(ends, pa.schema(map(EXCEPTION.field, POSITION))))
    connection.register("leaves_out", exceptions)
    connection.register("stops", stops(exceptions))
    copy = copy_of(lake, commit.log)
    for folder, name, which in ((copy, RAW, BEFORE_ENDS), (lake, COMMITS, "true"), (lake, LOST, "true")):
        if (delta := table(folder, name)) is not None:
            connection.register(f"{name}_rows", delta.to_pyarrow_dataset())
            connection.execute(f"CREATE VIEW {name} AS FROM {name}_rows AS event WHERE {which}")
    dates = list[str]()
    for name in map(table_name, event_types(load_lock())):
        if (delta := table(copy, name)) is not None:
            connection.register(f"{name}_rows", delta.to_pyarrow_dataset())
            connection.execute(COUNTING.format(name=name))
            dates.append(f"SELECT occurred_at FROM {name}")
    if dates:
        connection.execute(CALENDAR.format(dates=" UNION ALL ".join(dates)))
    if articles is not None:
        path = str(articles).replace("'", "''")
        read = f"FROM read_csv('{path}', header = true, all_varchar = true)"
        connection.execute(f"CREATE VIEW articles AS {read}")
    for name, mart in marts.items():
        connection.register(f"{name}_rows", mart.to_pyarrow_dataset())
        connection.execute(f"CREATE VIEW {name} AS FROM {name}_rows")  # SHOW TABLES lists it
    return connection
