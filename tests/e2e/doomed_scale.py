"""`daybook …` that is killed after the NTH step of a change of slots: `python -m tests.e2e.doomed_scale NTH scale …`.

A step is a record of the layout, the fence of one slot, or the note of how many processes there are.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

from infra.cli.main import command
from infra.log import control
from infra.stack.embedded.platform import EmbeddedPlatform
from services.kernel.log.transactions import Transactions


def main() -> None:
    nth, steps = int(sys.argv.pop(1)), count(1)

    def doomed(step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            result = step(*args, **more)
            if next(steps) == nth:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    for owner, name in (
        (control, "_write_layout"),
        (Transactions, "fence"),
        (EmbeddedPlatform, "scale"),
    ):
        setattr(owner, name, doomed(getattr(owner, name)))
    command()(prog_name="daybook")


if __name__ == "__main__":
    main()
