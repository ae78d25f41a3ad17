"""Makes marts of a lake that has grown: what an earlier output has of them stays, where no event has come since."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from analytics.delta import Location
from analytics.envelope import before
from analytics.events import EachTypeOnce, check_streams
from analytics.jobs.outputs import OutputReading, read_earlier, write
from analytics.lake.reader import LakeLog
from analytics.lake.tables import Commit, read_exceptions, rows_before
from analytics.marts.catalogue import MARTS, Mart, Sources
from analytics.marts.increments import ADDED, FOLLOWING, SomeEvents, computed, refreshed
from analytics.money import with_micros
from analytics.offsets import flat

ORDERS = "orders"
FOLLOW_FROM = 1_000_000
"""Records. Marts of fewer are made anew: that takes less time than to find what has changed, and little memory."""
CODE = Path(__file__).parent.parent


@cache
def code_fingerprint() -> str:
    """Identifies the code and the definitions of all marts: rows that other code has made are not kept."""
    files = sorted(file for file in CODE.rglob("*") if file.suffix in {".py", ".yaml"})
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


class LakeMarts:
    """Marts as of the last of `commits`, which is `log`, of the lake `folder`; their outputs are in `out`."""

    def __init__(
        self,
        session: SparkSession,
        folder: Location,
        commits: Sequence[Commit],
        log: LakeLog,
        out: Location,
        reading: OutputReading,
    ) -> None:
        self._session, self._folder, self._commits, self._log = session, folder, commits, log
        self._out, updated = out, commits[-1].time.isoformat()
        self._reading = replace(reading, updated=updated, code=code_fingerprint())
        self._events = EachTypeOnce(log)
        self._few = sum(end for *_, end in flat(log.ends)) < FOLLOW_FROM
        self._bases: dict[str, Commit | None] = {}
        self._changed_since: dict[int, DataFrame] = {}

    def bring_up_to_date(self, mart: Mart) -> None:
        """Writes its output, and before it that of the orders, where it is made of them. Raises Unfit."""
        base = self.base(mart.name)
        if base is not None and base.number == self._commits[-1].number:
            return
        if self._few or mart.name not in FOLLOWING:
            base = None
        find_orders = None if mart.name == ORDERS else lambda: self._orders
        if base is None:
            rows = mart.build(Sources(self._events, find_orders=find_orders))
        elif mart.name in ADDED:
            new = SomeEvents(self._events, lambda events: events.where(~before(base.ends)))
            rows = ADDED[mart.name](self._read(mart.name), mart.build(Sources(new)))
        else:
            rows = refreshed(mart, self._read(mart.name), self._changed(base), self._events, find_orders)
        write(rows, mart, self._reading, self._out)
        self._bases[mart.name] = self._commits[-1]

    @cached_property
    def _orders(self) -> DataFrame:
        """The output of the orders, up to date."""
        self.bring_up_to_date(MARTS[ORDERS])
        return self._read(ORDERS)

    def base(self, name: str) -> Commit | None:
        """The update of which the earlier output of a mart was made. None if all of it must be made anew: there is no
        such output, other code has made it, or what counted then counts no longer."""
        if name not in self._bases:
            self._bases[name] = self._find_base(name)
        return self._bases[name]

    def check(self, names: Sequence[str]) -> bool:
        """Returns whether two marts at a time fit into memory: the records are few, or all that can follow an earlier
        output have one. Then only the streams that have events since are checked, the others were when it was made.
        Raises BrokenStream."""
        bases = [self.base(name) for name in {ORDERS, *names} if name in FOLLOWING]
        events = self._log.events
        if follows := all(bases) and not self._few:
            oldest = min((base for base in bases if base), key=lambda base: base.number)
            events = events.join(self._changed(oldest), "entity", "left_semi")
        check_streams(events)
        return follows or self._few

    def _find_base(self, name: str) -> Commit | None:
        try:
            earlier = read_earlier(self._out, name)
        except ValueError:
            return None
        if earlier.code != code_fingerprint():
            return None
        now = self._commits[-1]
        return next(
            (
                commit
                for commit in self._commits
                if commit.time.isoformat() == earlier.updated
                and (commit.log, commit.contracts) == (now.log, now.contracts)
                and read_exceptions(self._folder, commit)
                == self._log.exceptions.filter(rows_before(commit.ends))
            ),
            None,
        )

    def _read(self, name: str) -> DataFrame:
        return with_micros(self._session.read.format("delta").load(f"{self._out}/{name}"))

    def _changed(self, base: Commit) -> DataFrame:
        """The orders and SKUs with an event that was copied after `base`."""
        if base.number not in self._changed_since:
            new = self._log.events.where(~before(base.ends))
            self._changed_since[base.number] = computed(new.select("entity").distinct())
        return self._changed_since[base.number]
