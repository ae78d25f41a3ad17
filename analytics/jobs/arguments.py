"""Shared by the jobs: settings from the environment, arguments, exit codes."""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import typer
from py4j.protocol import Py4JError
from pydantic import ValidationError
from pyspark.errors import PySparkException

from analytics.errors import AnalyticsError
from analytics.lake.views import TABLE_ERRORS
from analytics.settings import AnalyticsSettings
from analytics.terminal import plain

IDENTICAL, DIFFERENT, FAILED = 0, 1, 2


def run_job(job: Callable[..., Any], epilog: str = "") -> None:
    """Runs a job's function with the process's arguments. Errors are plain lines: a box would break them. `epilog`
    ends the help; its lines are not wrapped."""
    command = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    command.command(epilog=f"\b\n{epilog}")(job)
    command()


def settings_or_exit() -> AnalyticsSettings:
    """Returns the settings. A missing one is a usage error (exit code 2)."""
    try:
        return AnalyticsSettings.model_validate({})
    except ValidationError as error:
        missing = ", ".join(f"DAYBOOK_{str(part['loc'][0]).upper()}" for part in error.errors())
        raise typer.BadParameter(f"not set, or not valid: {missing}") from error


def writable_folder(text: str) -> Path:
    """Parses a path whose parent is a writable folder."""
    path = Path(text).absolute()
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise typer.BadParameter(f"{path.parent} is not a folder that can be written to")
    return path


def writable(text: str) -> str:
    """Parses a URI, or a path whose parent is a writable folder."""
    return text if "://" in text else str(writable_folder(text))


@contextmanager
def exit_on_failure() -> Iterator[None]:
    """Prints an error of analytics, of Spark, its tables or the disk as one line on stderr and exits with code 2. The
    stack goes to a file, except where analytics raised it."""
    try:
        yield
    except AnalyticsError as failure:
        _fail(str(failure))
    except (Py4JError, PySparkException, OSError, *TABLE_ERRORS) as failure:
        stack = "".join(traceback.format_exception(failure))
        details = ""
        with (
            suppress(OSError),  # this disk may be the full one
            NamedTemporaryFile("w", prefix="daybook-spark-", suffix=".txt", delete=False) as file,
        ):
            file.write(stack)
            details = f" (details: {file.name})"
        _fail(f"{spark_failure(stack, traceback.format_exception_only(failure)[0].splitlines()[0])}{details}")


ENDED = "Spark's Java ended, usually for want of memory: set DAYBOOK_SPARK_MEMORY, for example to 2g"
# What Spark's stack contains, and what to do; the first that fits counts.
SPARK_FAILURES = {
    "OutOfMemoryError": "Spark needs more memory: set DAYBOOK_SPARK_MEMORY, or DAYBOOK_SPARK_EXECUTOR_MEMORY for a "
    "cluster's executors, for example to 2g",
    "Please increase heap size": "Spark needs more memory: set DAYBOOK_SPARK_MEMORY, for example to 1g",
    "No space left on device": "the disk is full: free space, or let Spark spill elsewhere with DAYBOOK_SPARK_SCRATCH",
    "on a stopped SparkContext": "Spark was stopped: if DAYBOOK_SPARK_MASTER is a cluster, `./daybook spark status`",
    "Could not parse Master URL": "DAYBOOK_SPARK_MASTER is not the address of a master, for example spark://host:7077",
    "JAVA_GATEWAY_EXITED": "Java did not start: check JAVA_HOME, and DAYBOOK_SPARK_MEMORY (for example 2g)",
    "could be lost": "records were deleted while they were read: is the log's retention unlimited?",
    "UnknownTopicOrPartition": "the log has no such topic: is DAYBOOK_KAFKA the address of this shop?",
    "Cannot fetch record for offset": "the broker stopped responding: check DAYBOOK_KAFKA",
    "org.apache.kafka.common.errors.TimeoutException": "the broker stopped responding: check DAYBOOK_KAFKA",
    "/asyncpg/": "the read models' database stopped responding: check DAYBOOK_DATABASE_URL",
    "Connection refused": ENDED,
    "Answer from Java side is empty": ENDED,
    "Error while sending or receiving": ENDED,
    "does not exist in the JVM": ENDED,
}


def spark_failure(stack: str, own: str) -> str:
    """Says in one line why it failed; `own`: the first line of the exception's own text."""
    advices = (advice for sign, advice in SPARK_FAILURES.items() if sign in stack)
    # Java's own words stand before its frames.
    reason = next((line.removeprefix(": ") for line in stack.splitlines() if line.startswith(": ")), own)
    return next(advices, f"it failed: {reason}")


def _fail(reason: str) -> None:
    print(f"daybook: {plain(reason, None)}", file=sys.stderr)
    sys.exit(FAILED)


def report_step(step: str) -> None:
    """Prints progress as one line on stderr."""
    print(f"… {step}", file=sys.stderr, flush=True)
