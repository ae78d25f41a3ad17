"""Logging of every process: one JSON object per line, on stdout."""

import logging
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO, cast

import msgspec
import structlog
from structlog.tracebacks import ExceptionDictTransformer

REPEAT_SECONDS = 10.0
MOST_TEMPLATES = 1000


def configure_logging(process: str, level: str = "INFO") -> None:
    """Writes JSON lines to stdout: process, level, timestamp, event, correlation_id; never bodies or locals."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        lambda _logger, _method, entry: {"process": process, **entry},
        structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
    ]
    render = structlog.processors.JSONRenderer(serializer=_json)
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _LossyFile(sys.stdout))),
        cache_logger_on_first_use=True,
    )
    libraries = logging.StreamHandler(sys.stdout)
    libraries.setFormatter(structlog.stdlib.ProcessorFormatter(render, foreign_pre_chain=shared))
    libraries.addFilter(RepeatFilter())
    logging.basicConfig(level=logging.WARNING, handlers=[libraries], force=True)


class RepeatFilter(logging.Filter):
    """Passes a library's line once per `REPEAT_SECONDS`; the next line that passes counts those left out.

    Two lines are equal if their logger and template are equal. A client that lost its broker writes one line
    per connection attempt, 50 a second. Lines with an exception always pass.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info:
            return True
        now, template = self._clock(), (record.name, str(record.msg))
        passed_at, left_out = self._passed.get(template, (float("-inf"), 0))
        if now - passed_at < REPEAT_SECONDS:
            self._passed[template] = passed_at, left_out + 1
            return False
        if len(self._passed) >= MOST_TEMPLATES:
            self._passed.clear()
        self._passed[template] = now, 0
        if left_out:
            record.msg = f"{record.msg} ({left_out} such lines left out)"
        return True


class _LossyFile:
    """Ignores write errors: a full disk loses log lines, never requests or transactions. The handlers of `logging` do
    the same."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


def _json(entry: dict[str, Any], **_: Any) -> str:
    return msgspec.json.encode(entry, enc_hook=repr).decode()
