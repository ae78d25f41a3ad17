"""A member under the supervisor's eyes: its child, its deaths, and how long until the next try."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from infra.base.journal import MemberState
from infra.stack.embedded.child import Child
from infra.stack.embedded.stack import Member
from infra.stack.shop import SILENT
from services.kernel.exit_codes import EXIT_JUDGED, EXIT_REBUILT, EXIT_STOOD_DOWN
from services.kernel.worker.broker_monitor import BrokerSight

PLANNED = {
    EXIT_STOOD_DOWN: "stood_down",
    EXIT_JUDGED: "decision_recorded",
    EXIT_REBUILT: "read_model_rebuilt",
}
FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 30.0
# A process that has lived this long starts again at once.
SETTLED_SECONDS = 60.0
# A process that dies sooner after its start did not die of the broker's absence: that takes longer.
SUDDEN_SECONDS = 1.0
# A death so soon after the broker's absence is put down to it.
EXCUSED_SECONDS = 10.0


def backoff(deaths: int) -> float:
    """Seconds to wait before the restart that follows the `deaths`-th early death in a row; 0 for none."""
    return min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** (deaths - 1)) if deaths else 0.0


@dataclass
class Watched:
    """A member under watch; `restart_at` and `started_at` are monotonic seconds.

    `lived`: seconds since the last death that was counted.
    """

    member: Member
    child: Child | None = None
    ready: bool = False
    restarts: int = 0
    deaths: int = 0
    lived: float = 0.0
    started_at: float = 0.0
    restart_at: float | None = None
    probed_at: float = 0.0
    silent: int = 0
    held: bool = False

    def died(self, lived: float, broker_was_away: bool) -> float:
        """Count a death after `lived` seconds; how many to wait before the restart.

        A process that ended because of the broker's absence starts at once, and waits for the broker itself:
        that death is not counted.
        """
        self.lived += lived
        if broker_was_away and self.member.name not in SILENT and lived > SUDDEN_SECONDS:
            return 0.0
        self.deaths = 0 if self.lived > SETTLED_SECONDS else self.deaths + 1
        self.lived = 0.0
        return backoff(self.deaths)

    def state(self) -> MemberState:
        alive = self.child is not None and self.child.exit_code is None
        return MemberState(
            self.member.name,
            self.child.pid if self.child and alive else None,
            self.ready and alive,
            self.restarts,
            self.held,
        )


def broker_was_away(bootstrap: str) -> Callable[[], bool]:
    """Tells, whenever it is called, whether an independent client saw the broker away lately."""
    sight = BrokerSight(bootstrap)
    sight.follow()
    return lambda: sight.sight.away_within(EXCUSED_SECONDS, time.monotonic())


def ended_as(code: int) -> str:
    """The event that is recorded. A worker that did what it was told to did not die."""
    return PLANNED.get(code, "died")
