"""A file system of some megabytes, in a mount namespace of its own, that a test may fill to the last byte.

As root a mount namespace is enough; else a user namespace gives the right to mount. Where neither is allowed
the test fails: it must not be skipped unnoticed.
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
    """Processes started through `enter` see the disk at `folder`, all others at `seen`."""

    def __init__(self, folder: Path, holder: int, namespaces: tuple[str, ...]) -> None:
        self.folder = folder
        self.seen = Path(f"/proc/{holder}/root{folder}")
        as_user = ("--user", "--preserve-credentials") if namespaces == AS_USER else ()
        self.enter = ("nsenter", "--target", str(holder), "--mount", *as_user, f"--wd={ROOT}")
        self._ballast = self.seen / "ballast"

    def free(self) -> int:
        usage = os.statvfs(self.seen)
        return usage.f_bavail * usage.f_frsize

    def leave(self, megabytes: int) -> None:
        """Fill the disk until `megabytes` are free."""
        with self._ballast.open("ab") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, self.free() - megabytes * MEGABYTE)

    def fill(self) -> None:
        """Fill the disk to the last byte."""
        with self._ballast.open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(MEGABYTE))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def clear(self) -> None:
        """Free the space again."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """A disk that disappears with the last process that was started through it."""
    folder.mkdir(parents=True)
    namespaces = next((namespace for namespace in (AS_ROOT, AS_USER) if _allowed(namespace)), None)
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
