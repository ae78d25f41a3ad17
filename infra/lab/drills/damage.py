"""What happens to the active site: killed, frozen or cut off, in an order of chance."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from infra.lab.drills.pair import DrillFailed, Pair
from infra.stack.link import LinkState, set_links
from infra.stack.site import Site

LONGEST_PAUSE = 0.25  # seconds between two kills


class Kind(StrEnum):
    """`DEAD`: kill -9 of everything; `FROZEN`: SIGSTOP of everything; `CUT`: alive, out of reach."""

    DEAD = "dead"
    FROZEN = "frozen"
    CUT = "cut off"


@dataclass(frozen=True)
class Damage:
    """What was done to `site`, in order; `at` is when it began, seconds since 1970."""

    site: Site
    kind: Kind
    order: tuple[str, ...]
    at: float


def strike(pair: Pair, site: Site, kind: Kind, chance: Random) -> Damage:
    """Do it, in the midst of whatever runs there."""
    if kind is Kind.CUT:
        at = time.time()
        cut(pair)
        return Damage(site, kind, ("link",), at)
    if not pair.platform.up(site):
        raise DrillFailed(f"{site.name} does not run")
    processes = pair.platform.processes(site)
    order = [name for name, process in processes.items() if process.running]
    chance.shuffle(order)

    def wait() -> None:
        time.sleep(chance.choice((0.0, 0.0, chance.uniform(0, LONGEST_PAUSE))))

    at = time.time()
    if kind is Kind.DEAD:
        pair.platform.kill_site(site, order, wait)
    else:
        pair.platform.pause_site(site, order, wait)
    return Damage(site, kind, tuple(order), at)


def undo(pair: Pair, damage: Damage) -> None:
    """The site comes back as far as it does by itself: thawed or in reach; a dead one stays dead."""
    match damage.kind:
        case Kind.CUT:
            heal(pair)
        case Kind.FROZEN:
            pair.platform.resume_site(damage.site)
        case Kind.DEAD:
            pass


def cut(pair: Pair) -> None:
    """Neither site reaches the other."""
    set_links(pair.sites.values(), LinkState(cut=True))


def heal(pair: Pair) -> None:
    set_links(pair.sites.values(), LinkState())
