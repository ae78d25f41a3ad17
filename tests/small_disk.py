"""A file system of some megabytes, in a mount namespace of its own, that a test may fill to the last byte.

As root a mount namespace is enough; else a user namespace gives the right to mount. Where neither is allowed
the test fails and says so: a full disk is not something to leave out unseen.
"""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.base.settings import ROOT

MEGABYTE = 1_000_000
AS_ROOT, AS_USER = ("--mount",), ("--mount", "--user", "--map-root-user")


class SmallDisk:
    """`folder` is where the disk is for processes that are started through `enter`; `seen` is the way to it
    for everybody else."""

    def __init__(self, folder: Path, holder: int, namespaces: tuple[str, ...]) -> None:
        self.folder = folder
        self.seen = Path(f"/proc/{holder}/root{folder}")
        as_user = ("--user", "--preserve-credentials") if namespaces == AS_USER else ()
        self.enter = ("nsenter", "--target", str(holder), "--mount", *as_user, f"--wd={ROOT}")
        self._ballast = self.seen / "ballast"

    def free(self) -> int:
        found = os.statvfs(self.seen)
        return found.f_bavail * found.f_frsize

    def leave(self, megabytes: int) -> None:
        """Take space until so much is free."""
        with self._ballast.open("ab") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, self.free() - megabytes * MEGABYTE)

    def fill(self) -> None:
        """Take all that is left, to the last byte."""
        with self._ballast.open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(MEGABYTE))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def clear(self) -> None:
        """Give the space back."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """It is gone with the last process that was started through it."""
    folder.mkdir(parents=True)
    namespaces = next((each for each in (AS_ROOT, AS_USER) if _allowed(each)), None)
    if namespaces is None:
        pytest.fail("no disk to fill: run this test as root, or where `unshare --user --mount` is allowed")
    mount = (
        f"mount -t tmpfs -o size={megabytes * MEGABYTE} small '{folder}' && echo mounted && exec sleep inf"
    )
    with subprocess.Popen(["unshare", *namespaces, "sh", "-c", mount], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == b"mounted\n"
            yield SmallDisk(folder, holder.pid, namespaces)
        finally:
            holder.kill()


def _allowed(namespaces: tuple[str, ...]) -> bool:
    mount = ["unshare", *namespaces, "mount", "-t", "tmpfs", "small", "/mnt"]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0
