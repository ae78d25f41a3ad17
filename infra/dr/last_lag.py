"""What a site last measured of the mirror into it, for an operator who may promote it without the other site.

The guard measures each second while both sites respond, and keeps the last result in its site's database. When the
source is lost, nothing else shows how far it was ahead.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from infra.log.database import in_database
from infra.stack.site import Site
from services.kernel.record.envelope import format_time
from services.projection.engine.read_model import DATABASE_ERRORS

STALE_SECONDS = 600.0
DATABASE_SECONDS = 2.0
_SELECT = "SELECT last_lag FROM site WHERE site = $1"


class LastLag(msgspec.Struct, frozen=True):
    """The mirror's lag when both sites were last measured, at `measured_at` (micros UTC), in the site's `epoch`.

    `events` of each topic were committed at `source` and not yet here; `seconds` is the age of the oldest of them, 0
    without any. If `exact` is false, the counts are upper bounds that include transaction markers.
    """

    source: str
    epoch: int
    measured_at: int
    seconds: float
    events: Mapping[str, int]
    exact: bool = True

    @property
    def total(self) -> int:
        return sum(self.events.values())

    def age(self, now: int) -> float:
        """Seconds since the measurement; `now` in micros UTC."""
        return max(0.0, (now - self.measured_at) / 1_000_000)


def last_known(site: Site) -> LastLag | None:
    """The last lag that the guard of `site` stored; None if there is none, or if the database does not respond."""
    try:
        return in_database(site.database_url, partial(stored_lag, site=site.name), DATABASE_SECONDS)
    except DATABASE_ERRORS:
        return None


async def stored_lag(connection: Any, site: str) -> LastLag | None:
    """The lag that the site's guard stored last. Raises asyncpg's errors."""
    value = await connection.fetchval(_SELECT, site)
    return None if value is None else msgspec.json.decode(value, type=LastLag)


def forecast(source: str, target: str, last: LastLag | None, now: int) -> str:
    """What a promotion of `target` without `source` may lose, in words: what is known, and what is not."""
    if last is None:
        return f"It is not known how far {source} was ahead of {target}: no stored measurement could be read."
    when = f"{source} was last heard {in_words(last.age(now))} ago, at {format_time(last.measured_at)[:19]}Z"
    unknown = f"What {source} acknowledged after that is not known and would be lost."
    if not last.total:
        return f"{when}: {target} had all that was committed then. {unknown}"
    topics = ", ".join(f"{topic} {count}" for topic, count in sorted(last.events.items()) if count)
    count = f"{'about' if last.exact else 'at most'} {last.total} events ({topics})"
    return f"{when}, {last.seconds:.1f} s ahead: {count} were not at {target}. {unknown}"


def staleness(last: LastLag | None, epoch: int, now: int) -> str | None:
    """Why a site in `epoch` is so stale that a promotion must be confirmed with its name; None if it is not.

    Its log may lack what it lacked at the last measurement and everything since.
    """
    if last is None:
        return "it is not known how old its log is"
    if last.epoch < epoch:
        return f"its log was last measured in epoch {last.epoch}, and the site is in epoch {epoch}"
    missing = last.age(now) + last.seconds
    if missing > STALE_SECONDS:
        return f"its log may lack the last {in_words(missing)}; the limit is {in_words(STALE_SECONDS)}"
    return None


def in_words(seconds: float) -> str:
    """8.1 s, 12 min or 3.5 h."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
