"""A member under the supervisor's eyes: its child, its deaths, and how long until the next try."""

from dataclasses import dataclass

from infra.embedded.child import Child
from infra.embedded.journal import MemberState
from infra.embedded.stack import Member

FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 30.0


def backoff(deaths: int) -> float:
    """Seconds to wait before the restart that follows the `deaths`-th early death in a row."""
    return min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** (deaths - 1))


@dataclass
class Watched:
    """A member under watch; `restart_at` and `started_at` are monotonic seconds."""

    member: Member
    child: Child | None = None
    ready: bool = False
    restarts: int = 0
    deaths: int = 0
    started_at: float = 0.0
    restart_at: float | None = None
    probed_at: float = 0.0
    silent: int = 0
    held: bool = False

    def state(self) -> MemberState:
        alive = self.child is not None and self.child.exit_code is None
        return MemberState(
            self.member.name,
            self.child.pid if self.child and alive else None,
            self.ready and alive,
            self.restarts,
            self.held,
        )
