"""The threads of a process that follow something for its whole life."""

import os
import sys
import threading
from collections.abc import Callable

import structlog

from services.kernel.exit_codes import EXIT_FAILED

log = structlog.get_logger(__name__)


def exit_at_once(reason: str) -> None:
    log.error("ending", reason=reason)
    sys.stdout.flush()
    os._exit(EXIT_FAILED)


def end_with_threads(end: Callable[[str], None] = exit_at_once) -> None:
    """From now on a thread that fails ends the process, which would go on with what that thread saw last."""

    def died(of: threading.ExceptHookArgs) -> None:
        name = of.thread.name if of.thread else "unnamed"
        log.error("thread_died", thread=name, exc_info=of.exc_value)
        end(f"its thread {name} died")

    threading.excepthook = died
