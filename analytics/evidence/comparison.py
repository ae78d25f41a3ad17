"""Compares several accounts of the same entities: where they differ, and from which version on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


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
    first, *others = (F.col(f"{name}_digest") for name in accounts)
    same = reduce(Column.__and__, (first.eqNullSafe(other) for other in others))
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
