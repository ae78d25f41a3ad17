"""Settings that no stack can have are one line, before any command begins."""

import os
from pathlib import Path

from pydantic import ValidationError

from infra.base.settings import HIGHEST_BASE, LOWEST_BASE, StackSettings
from infra.cli.output import fail

_MUST_BE = {
    "port_base": f"a whole number from {LOWEST_BASE} to {HIGHEST_BASE}",
    "site": "home or away",
    "stack": "embedded or compose",
}


def require_sound_settings() -> None:
    """Leave with exit code 1 where DAYBOOK_HOME, PORT_BASE, SITE or STACK is nothing to begin with."""
    try:
        home = StackSettings().home
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        must_be = _MUST_BE.get(name, first["msg"])
        fail(f"DAYBOOK_{name.upper()} is {first['input']!r}: it must be {must_be}")
    if not _can_be_made(home.absolute()):
        fail(f"DAYBOOK_HOME is '{home}': it must be a folder that you can write to or create")


def _can_be_made(home: Path) -> bool:
    """Without making it: some commands need none. What is there of the way to it says whether it could be."""
    nearest = next(each for each in (home, *home.parents) if os.path.lexists(each))
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
