"""Replaces an output folder as a whole: a killed job leaves the old or the new one."""

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HERE = -100  # AT_FDCWD
_EXCHANGE = 2  # RENAME_EXCHANGE
_NOT_HERE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


@contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Yields a folder to write; it replaces `folder` only if the block succeeds."""
    fresh, former = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
    if former.exists() and not folder.exists():
        former.rename(folder)  # killed between two renames
    shutil.rmtree(fresh, ignore_errors=True)
    yield fresh
    if not folder.exists():
        fresh.rename(folder)
    elif not exchange(fresh, folder):
        shutil.rmtree(former, ignore_errors=True)
        folder.rename(former)
        fresh.rename(folder)
    for left in (fresh, former):
        shutil.rmtree(left, ignore_errors=True)


def exchange(folder: Path, other: Path) -> bool:
    """Exchanges the names of two folders in one step; returns False if the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if rename(_HERE, os.fsencode(folder), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_HERE:
        return False
    raise OSError(number, os.strerror(number), str(other))
