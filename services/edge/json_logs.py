"""How every process of the shop logs: a JSON object a line, on stdout."""

from __future__ import annotations

import logging
import sys
from typing import Any

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
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
        cache_logger_on_first_use=True,
    )
    libraries = logging.StreamHandler(sys.stdout)
    libraries.setFormatter(structlog.stdlib.ProcessorFormatter(render, foreign_pre_chain=shared))
    logging.basicConfig(level=logging.WARNING, handlers=[libraries], force=True)


def _json(entry: dict[str, Any], **_: Any) -> str:
    return msgspec.json.encode(entry, enc_hook=repr).decode()
