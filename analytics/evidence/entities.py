"""Orders or stock in three accounts: the domain's fold, the read model, Spark's aggregates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.evidence.comparison import (
    Comparison,
    Difference,
    first_difference,
    join_accounts,
    summary,
    with_digest,
)
from analytics.evidence.domain_fold import DomainFold, folded
from analytics.replay import Replay

ACCOUNTS = ("log", "read_model", "spark")
NAMED_KEYS = 100


@dataclass(frozen=True)
class Accounts:
    """The comparison of one kind of entity: orders or stock."""

    session: SparkSession
    log: Replay
    kind: str
    fold: DomainFold
    aggregate: Callable[[Replay, bool], DataFrame]
    fields: Sequence[str]

    def compare(self, read_model: pa.Table, summed: Sequence[str]) -> tuple[Comparison, list[Difference]]:
        by_domain = folded(self.log, self.fold).persist()
        rows = self.session.createDataFrame(read_model)
        accounts = dict(zip(ACCOUNTS, (by_domain, rows, self.aggregate(self.log, False)), strict=True))
        joined = join_accounts(accounts, self.fields)
        joined = joined.join(by_domain.select("entity", "broken_at"), "entity", "left")
        joined = joined.withColumn("same", F.col("same") & F.col("broken_at").isNull()).persist()
        result = summary(self.kind, joined, ACCOUNTS, summed)
        differing = (
            joined.where("NOT same").orderBy("entity").limit(NAMED_KEYS).collect() if result.differing else []
        )
        differences = self._differences(differing) if differing else []
        joined.unpersist()
        by_domain.unpersist()
        return result, differences

    def _differences(self, rows: Sequence[Any]) -> list[Difference]:
        """With the first differing version: only now is every prefix of these few streams folded."""
        keys = [row["entity"] for row in rows]
        log = replace(self.log, log=self.log.log.where(F.col("entity").isin(keys)))
        by_domain = self._digests(folded(log, self.fold, every_version=True))
        by_sql = self._digests(self.aggregate(log, True))
        differences = []
        for row in rows:
            key = row["entity"]
            read = (
                None
                if row["read_model_digest"] is None
                else (row["read_model_version"], row["read_model_digest"])
            )
            version = first_difference(by_domain.get(key, {}), by_sql.get(key, {}), read, row["broken_at"])
            accounts = "; ".join(f"{name}: {row[f'{name}_rendering'] or 'nothing'}" for name in ACCOUNTS)
            damage = f"the stream breaks at version {row['broken_at']}; " if row["broken_at"] else ""
            differences.append(Difference(self.kind, key, version, damage + accounts))
        return differences

    def _digests(self, account: DataFrame) -> dict[str, dict[int, str]]:
        digests: dict[str, dict[int, str]] = {}
        for row in with_digest(account, self.fields).select("entity", "version", "digest").collect():
            digests.setdefault(row["entity"], {})[row["version"]] = row["digest"]
        return digests
