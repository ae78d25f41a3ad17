"""What is to happen to which container, in an order of chance."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

from infra.lab.drills.pair import DrillFailed
from infra.stack.compose.failing import Failure

# Where the shop's log is: the lone broker, or one of the cluster.
LONE_BROKER, CLUSTER = "broker", ("broker-1", "broker-2", "broker-3")
BESIDE_A_BROKER = (
    (Failure.RESTART, "postgres"),
    (Failure.KILL, "order-worker"),
    (Failure.PAUSE, "inventory-worker"),
    (Failure.CUT, "projection"),
    (Failure.RESTART, "order-api"),
)


@dataclass(frozen=True)
class Blow:
    """One thing that is to happen to a service's container."""

    failure: Failure
    service: str

    def __str__(self) -> str:
        return f"{self.failure} {self.service}"


def choose(
    running: Collection[str], failures: Sequence[Failure], services: Sequence[str], chance: Random
) -> list[Blow]:
    """Each of `failures` to each of `services`, in an order of chance; with either empty, all four, or all
    that run; with both empty, six that differ: one kills a broker. Raises DrillFailed for a service that does
    not run."""
    if failures or services:
        blows = [Blow(*each) for each in product(failures or list(Failure), services or sorted(running))]
    else:
        broker = LONE_BROKER if LONE_BROKER in running else chance.choice(CLUSTER)
        blows = [Blow(*each) for each in ((Failure.KILL, broker), *BESIDE_A_BROKER)]
    absent = sorted({blow.service for blow in blows} - {*running})
    if absent:
        there = ", ".join(sorted(running))
        raise DrillFailed(f"no container runs for {', '.join(absent)}; these do: {there}")
    chance.shuffle(blows)
    return blows
