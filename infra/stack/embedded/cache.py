"""The user's cache of downloaded and derived files, shared by every checkout and reused offline."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """DAYBOOK_CACHE, else `~/.cache/daybook`; made when absent."""
    chosen = os.environ.get("DAYBOOK_CACHE")
    folder = Path(chosen) if chosen else Path.home() / ".cache" / "daybook"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()


@contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Hold the cache's lock of that name, so that two checkouts do not fetch into each other."""
    with (cache_folder() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def replaced_at_once(target: Path) -> Iterator[Path]:
    """Yield a path to write a file or folder to; it takes the target's place only when the block succeeds."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        fresh = Path(scratch) / target.name
        yield fresh
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        fresh.replace(target)
