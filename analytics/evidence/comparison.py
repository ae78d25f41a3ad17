"""Compares several accounts of the same entities: where they differ, and from which version on.

Orders and stock have three accounts: the domain's fold, the read model, Spark's aggregates. Sales have the read model
and the mart. The expectation of the commands' sender is the only account that does not come from the log."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics import staging
from analytics.errors import AnalyticsError
from analytics.evidence.domain_fold import DomainFold, folded
from analytics.marts.orders import REVENUE_GRAIN, daily_revenue
from analytics.replay import Replay

ACCOUNTS = ("log", "read_model", "spark")
NAMED_KEYS = 100
SALES_FIELDS = ("gross", "returned", "orders", "units")
EXPECTED: Mapping[str, Sequence[str]] = {
    "orders": ("status", "gross", "refund"),
    "stock": ("on_hand", "reserved"),
}
LINE = """
    kind string, key string, correlation string, status string, gross long, refund long, on_hand long,
    reserved long, damaged string
"""


class BadExpectation(AnalyticsError):
    """The expectation is not of its form."""


@dataclass(frozen=True)
class Difference:
    """One key on which the accounts differ; `version` is the first that does, None where there are none."""

    kind: str
    key: str
    version: int | None
    reason: str


@dataclass(frozen=True)
class Comparison:
    """The accounts of one kind of entity. `fingerprints` and `totals` are by account. `left_out` entities are not
    compared: their commands came from another sender too."""

    kind: str
    keys: int
    differing: int
    fingerprints: Mapping[str, str]
    totals: Mapping[str, Mapping[str, int]]
    left_out: int = 0


def with_digest(account: DataFrame, fields: Sequence[str]) -> DataFrame:
    """The account with `digest`: SHA-256 over the fields' canonical rendering, `name=value` joined by `|`."""
    return account.withColumn("digest", F.sha2(_rendering(fields), 256))


def join_accounts(accounts: Mapping[str, DataFrame], fields: Sequence[str]) -> DataFrame:
    """One row per entity that any account knows: per account its digest, rendering (`_rendering`) and fields."""
    frames = [
        with_digest(account, fields).select(
            "entity",
            F.col("digest").alias(f"{name}_digest"),
            _rendering(fields).alias(f"{name}_rendering"),
            *(F.col(field).alias(f"{name}_{field}") for field in fields),
        )
        for name, account in accounts.items()
    ]
    joined = reduce(lambda left, right: left.join(right, "entity", "full_outer"), frames)
    first_digest, *others = (F.col(f"{name}_digest") for name in accounts)
    same = reduce(Column.__and__, (first_digest.eqNullSafe(other) for other in others))
    return joined.withColumn("same", same)


def summary(kind: str, joined: DataFrame, accounts: Sequence[str], summed: Sequence[str]) -> Comparison:
    """Counts, fingerprints (independent of order) and the totals of the fields `summed`, in one pass."""
    columns = [F.count("*").alias("keys"), F.sum(F.when(F.col("same"), 0).otherwise(1)).alias("differing")]
    for name in accounts:
        columns.append(F.hex(F.bit_xor(F.xxhash64("entity", f"{name}_digest"))).alias(f"{name}_fingerprint"))
        columns += [F.sum(f"{name}_{field}").alias(f"{name}_{field}") for field in summed]
    row = joined.agg(*columns).first()
    return Comparison(
        kind,
        row["keys"],
        row["differing"] or 0,
        {name: row[f"{name}_fingerprint"] or "" for name in accounts},
        {name: {field: row[f"{name}_{field}"] or 0 for field in summed} for name in accounts},
    )


def _rendering(fields: Sequence[str]) -> Column:
    texts = {name: F.coalesce(F.col(name).cast("string"), F.lit("-")) for name in fields}
    return F.concat_ws("|", *(F.concat(F.lit(f"{name}="), text) for name, text in texts.items()))


@dataclass(frozen=True)
class EntityKind:
    """Orders or stock: the domain's fold, Spark's aggregate (with True, one row per event), the fields that are
    compared, and those of which totals are shown."""

    name: str
    fold: DomainFold
    aggregate: Callable[[Replay, bool], DataFrame]
    fields: Sequence[str]
    summed: Sequence[str]


Compared: TypeAlias = tuple[Comparison, list[Difference]]


def compare_entities(log: Replay, kind: EntityKind, by_domain: DataFrame, read_model: DataFrame) -> Compared:
    """Compares the three accounts of every order or SKU. `by_domain`: `log`, folded by the domain."""
    accounts = dict(zip(ACCOUNTS, (by_domain, read_model, kind.aggregate(log, False)), strict=True))
    joined = join_accounts(accounts, kind.fields)
    joined = joined.join(by_domain.select("entity", "broken_at"), "entity", "left")
    joined = joined.withColumn("same", F.col("same") & F.col("broken_at").isNull()).persist()
    result = summary(kind.name, joined, ACCOUNTS, kind.summed)
    differences = _with_versions(log, kind, _differing(joined, result))
    joined.unpersist()
    return result, differences


def _with_versions(log: Replay, kind: EntityKind, rows: Sequence[Any]) -> list[Difference]:
    """Finds the first differing version of each row: only now is every prefix of these few streams folded."""
    if not rows:
        return []
    few = replace(log, log=log.log.where(F.col("entity").isin([row["entity"] for row in rows])))
    by_domain = _digests(folded(few, kind.fold, every_version=True), kind.fields)
    by_sql = _digests(kind.aggregate(few, True), kind.fields)
    differences = []
    for row in rows:
        key, digest = row["entity"], row["read_model_digest"]
        read = None if digest is None else (row["read_model_version"], digest)
        version = first_difference(by_domain.get(key, {}), by_sql.get(key, {}), read, row["broken_at"])
        damage = f"the stream breaks at version {row['broken_at']}; " if row["broken_at"] else ""
        differences.append(Difference(kind.name, key, version, damage + _renderings(row, ACCOUNTS)))
    return differences


def _digests(account: DataFrame, fields: Sequence[str]) -> dict[str, dict[int, str]]:
    digests: dict[str, dict[int, str]] = {}
    for row in with_digest(account, fields).select("entity", "version", "digest").collect():
        digests.setdefault(row["entity"], {})[row["version"]] = row["digest"]
    return digests


def first_difference(
    log: Mapping[int, str], sql: Mapping[int, str], row: tuple[int, str] | None, broken_at: int | None
) -> int:
    """Returns the first version of an entity on which its accounts differ.

    `log` and `sql` are the digests of every prefix, by version; `row` is the read model's version and digest;
    `broken_at` is where the stream itself repeats or misses a version. A row that equals the prefix of its
    own version is only behind, or ahead: it differs from the next version on.
    """
    candidates = [] if broken_at is None else [broken_at]
    candidates += [
        version for version in sorted(log.keys() | sql.keys()) if log.get(version) != sql.get(version)
    ][:1]
    version, digest = row or (0, "")
    last = max(log, default=0)
    if version > last:
        candidates.append(last + 1)
    elif version == 0 or log.get(version) == digest:
        candidates += [version + 1] if version < last else []
    else:
        candidates.append(version)
    return min(candidates, default=last)


def compare_sales(log: Replay, read_model: DataFrame) -> tuple[Compared, list[tuple[str, str, int]]]:
    """Compares the days' sales of the read model with the mart; also returns by currency and day the net in micros."""
    mart = daily_revenue(staging.confirmed(log), staging.cancelled(log), staging.returned(log)).persist()
    key = F.concat_ws("/", *REVENUE_GRAIN).alias("entity")
    accounts = {
        "read_model": read_model.select(key, *SALES_FIELDS),
        "spark": mart.withColumnRenamed("refund", "returned").select(key, *SALES_FIELDS),
    }
    joined = join_accounts(accounts, SALES_FIELDS)
    result = summary("sales_daily", joined, tuple(accounts), SALES_FIELDS)
    differences = _differences(joined, result)
    net = mart.groupBy("currency", "day").agg(F.sum("net").alias("net"))
    by_day = net.orderBy("currency", "day").collect()
    mart.unpersist()
    return (result, differences), [(row["currency"], str(row["day"]), row["net"]) for row in by_day]


@dataclass(frozen=True)
class Expectation:
    """By kind, a table: `entity` and the fields of EXPECTED. What the sender began has a correlation id that begins
    with `correlation`."""

    tables: Mapping[str, DataFrame]
    correlation: str


def read_expectation(session: SparkSession, file: Path) -> Expectation:
    """From JSON lines: `kind`, `key`, `correlation`, the kind's fields, and perhaps others. Raises BadExpectation."""
    lines = session.read.json(str(file), LINE, columnNameOfCorruptRecord="damaged")
    missing = ["kind IS NULL", "key IS NULL", "correlation IS NULL"]
    missing += [f"kind = '{kind}' AND {name} IS NULL" for kind, of in EXPECTED.items() for name in of]
    broken = F.when(F.expr(" OR ".join(missing)), F.coalesce("damaged", F.to_json(F.struct("*"))))
    wrong, sender, last = lines.agg(F.max(broken), F.min("correlation"), F.max("correlation")).collect()[0]
    if wrong is not None:
        raise BadExpectation(f"{file}: this line expects nothing of an order or a SKU: {wrong[:200]}")
    if sender is None or sender != last:
        raise BadExpectation(f"{file} has lines of no sender, or of several: {sender}, {last}")
    of_kind = {kind: lines.where(F.col("kind") == kind) for kind in EXPECTED}
    tables = {kind: of_kind[kind].selectExpr("key AS entity", *of) for kind, of in EXPECTED.items()}
    return Expectation(tables, sender)


def touched_by_others(expectation: Expectation, events: DataFrame) -> DataFrame:
    """Returns the entities (`entity`) with an event that another sender caused. A retry by an order is correlated
    with the order."""
    orders = expectation.tables["orders"].select(F.col("entity").alias("correlation_id"))
    foreign = events.where(~F.col("correlation_id").startswith(expectation.correlation))
    return foreign.join(orders, "correlation_id", "left_anti").select("entity").distinct()


def compare_expected(expectation: Expectation, kind: str, log: DataFrame, events: DataFrame) -> Compared:
    """Compares the expected entities of a kind with the log's; counts those that another sender changed. `events` are
    the envelopes of the kind. An entity that is only in the log differs too."""
    others, fields = touched_by_others(expectation, events).persist(), EXPECTED[kind]
    rows, log = (account.join(others, "entity", "left_anti") for account in (expectation.tables[kind], log))
    if kind == "stock":
        # A SKU of which nothing is left, or never was, need not be in either account.
        rows, log = (account.where("on_hand <> 0 OR reserved <> 0") for account in (rows, log))
    joined = join_accounts({"expected": rows, "log": log}, fields).persist()
    summed = [name for name in fields if name != "status"]
    result = summary(f"expected {kind}", joined, ("expected", "log"), summed)
    result = replace(result, left_out=others.count())
    differences = _differences(joined, result)
    joined.unpersist()
    others.unpersist()
    return result, differences


def _differences(joined: DataFrame, result: Comparison) -> list[Difference]:
    """Returns the differences of accounts that have no versions."""
    return [
        Difference(result.kind, row["entity"], None, _renderings(row, [*result.fingerprints]))
        for row in _differing(joined, result)
    ]


def _differing(joined: DataFrame, result: Comparison) -> list[Any]:
    first = joined.where("NOT same").orderBy("entity").limit(NAMED_KEYS)
    return first.collect() if result.differing else []


def _renderings(row: Any, accounts: Sequence[str]) -> str:
    return "; ".join(f"{name}: {row[f'{name}_rendering'] or 'nothing'}" for name in accounts)
