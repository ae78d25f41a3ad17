"""What happens to the active site: killed, frozen or cut off, in an order of chance."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from infra.lab.drills.pair import DrillFailed, Pair
from infra.stack.embedded.link import LinkState, write_link
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
    frozen: tuple[int, ...] = ()


def strike(pair: Pair, site: Site, kind: Kind, chance: Random) -> Damage:
    """Do it, in the midst of whatever runs there."""
    if kind is Kind.CUT:
        at = time.time()
        cut(pair)
        return Damage(site, kind, ("link",), at)
    state = site.journal.read()
    if state is None or not site.journal.supervised():
        raise DrillFailed(f"{site.name} does not run")
    groups = [(member.name, member.pid) for member in state.members if member.pid is not None]
    chance.shuffle(groups)
    # It would start again what dies; and at its own death Linux would ask its children to stop in order.
    os.kill(state.supervisor, signal.SIGSTOP)
    at = time.time()
    blow = signal.SIGKILL if kind is Kind.DEAD else signal.SIGSTOP
    for _, pid in groups:
        with suppress(ProcessLookupError):
            os.killpg(pid, blow)
        time.sleep(chance.choice((0.0, 0.0, chance.uniform(0, LONGEST_PAUSE))))
    if kind is Kind.DEAD:
        os.kill(state.supervisor, signal.SIGKILL)
    order = tuple(name for name, _ in groups)
    frozen = (*(pid for _, pid in groups), state.supervisor) if kind is Kind.FROZEN else ()
    return Damage(site, kind, order, at, frozen)


def undo(pair: Pair, damage: Damage) -> None:
    """The site comes back as far as it does by itself: thawed or in reach; a dead one stays dead."""
    if damage.kind is Kind.CUT:
        heal(pair)
    *members, supervisor = damage.frozen or (0,)
    for pid in members:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGCONT)
    if supervisor:
        os.kill(supervisor, signal.SIGCONT)


def cut(pair: Pair) -> None:
    """Neither site reaches the other."""
    for site in pair.sites.values():
        write_link(site.link_state, LinkState(cut=True))


def heal(pair: Pair) -> None:
    for site in pair.sites.values():
        write_link(site.link_state, LinkState())
