"""What the jobs share: settings from the environment, arguments, exit codes."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from analytics.settings import AnalyticsSettings
from analytics.terminal import plain

IDENTICAL, DIFFERENT, FAILED = 0, 1, 2


def settings_or_exit(parser: argparse.ArgumentParser) -> AnalyticsSettings:
    """The settings; where one is missing, the parser's error (exit code 2)."""
    try:
        return AnalyticsSettings.model_validate({})
    except ValidationError as error:
        missing = ", ".join(f"DAYBOOK_{str(part['loc'][0]).upper()}" for part in error.errors())
        parser.error(f"not set, or not valid: {missing}")


def writable_folder(text: str) -> Path:
    """An argument: a path whose parent exists and can be written to."""
    path = Path(text).absolute()
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{path.parent} is not a folder that can be written to")
    return path


def existing_file(text: str) -> Path:
    """An argument: a file that is there."""
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{path} is not a file")
    return path


@contextmanager
def failures_said(*known: type[Exception]) -> Iterator[None]:
    """Known failures become one line on stderr and exit code 2."""
    try:
        yield
    except known as failure:
        print(f"daybook: {plain(str(failure), None)}", file=sys.stderr)
        sys.exit(FAILED)


def say(step: str) -> None:
    """Progress, one line on stderr."""
    print(f"… {step}", file=sys.stderr, flush=True)
