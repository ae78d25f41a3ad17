"""Shared by the jobs: settings from the environment, arguments, exit codes."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

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


def existing_file(text: str) -> Path:
    """Parses the path of an existing file."""
    path = Path(text)
    if not path.is_file():
        raise typer.BadParameter(f"{path} is not a file")
    return path


@contextmanager
def exit_on(*expected: type[Exception]) -> Iterator[None]:
    """Prints an expected error as one line on stderr and exits with code 2."""
    try:
        yield
    except expected as failure:
        print(f"daybook: {plain(str(failure), None)}", file=sys.stderr)
        sys.exit(FAILED)


def report_step(step: str) -> None:
    """Prints progress as one line on stderr."""
    print(f"… {step}", file=sys.stderr, flush=True)
