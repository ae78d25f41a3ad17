"""Logs of bounded size: `x.log`, then `x.log.1`, … up to a number of older ones."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

KEPT_BYTES = 16 * 1024 * 1024
KEPT_FILES = 3


def rotate(file: Path, kept_bytes: int = KEPT_BYTES, *, written: bool = False) -> None:
    """Put a file of more than `kept_bytes` aside as `<file>.1`, the older ones behind it; drop the oldest.

    A file that a process writes to (`written`, at the end of the file) is copied and emptied: lines of the
    microseconds between the two are lost. Where the disk has no room for that, the file stays as it is.
    """
    with suppress(OSError):
        if file.stat().st_size <= kept_bytes:
            return
        for number in range(KEPT_FILES - 1, 0, -1):
            with suppress(FileNotFoundError):
                older(file, number).replace(older(file, number + 1))
        if not written:
            file.replace(older(file, 1))
            return
        try:
            shutil.copyfile(file, older(file, 1))
        except OSError:
            older(file, 1).unlink(missing_ok=True)
        else:
            os.truncate(file, 0)


def older(file: Path, number: int) -> Path:
    """The name of the `number`-th file before `file`."""
    return file.with_name(f"{file.name}.{number}")
