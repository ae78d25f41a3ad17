"""How every process of the shop logs: a JSON object a line, on stdout."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any, TextIO, cast

import msgspec
import structlog
from structlog.tracebacks import ExceptionDictTransformer


def configure_logging(process: str, level: str = "INFO") -> None:
    """JSON lines on stdout: process, level, timestamp, event, correlation_id. Never bodies, never locals."""
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
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Forgetful(sys.stdout))),
        cache_logger_on_first_use=True,
    )
    libraries = logging.StreamHandler(sys.stdout)
    libraries.setFormatter(structlog.stdlib.ProcessorFormatter(render, foreign_pre_chain=shared))
    logging.basicConfig(level=logging.WARNING, handlers=[libraries], force=True)


class _Forgetful:
    """Drops what the file does not take: a full disk loses log lines, never requests or transactions.

    `logging`'s own handlers do the same.
    """

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
