"""Beside the supervisor's loop, which may wait for a process: watches the disk and rotates the logs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress

from infra.base.journal import StackJournal
from infra.base.rotation import rotate
from infra.base.settings import StackSettings
from infra.stack.embedded.stack import log_file
from infra.stack.storage import LOOK_SECONDS, MEGABYTE, StorageWatch

SHORT, ENOUGH = "short", "enough"


def site_storage(settings: StackSettings, *, was_short: bool = False) -> StorageWatch:
    """The disks of a site's state: its stores may have disks of their own."""
    folders = [settings.home, settings.home / "broker", settings.home / "postgres"]
    return StorageWatch(folders, settings.storage_reserve_mb * MEGABYTE, was_short=was_short)


class Housekeeping:
    """`start` and `stop` once. `storage` is what was seen last; the logs of `members` are rotated."""

    def __init__(self, settings: StackSettings, members: Sequence[str]) -> None:
        self.storage = site_storage(settings)
        self._logs = [log_file(settings, name) for name in (*members, "supervisor")]
        self._recorded = False
        self._bootstrap = ""
        self._over = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="housekeeping", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def site_opened(self, bootstrap: str) -> None:
        """From now on the broker there knows `site.control`, which is told when space is short."""
        self._bootstrap = bootstrap

    def record(self, journal: StackJournal) -> str:
        """Record when space gets short and when there is enough again. Returns that event, else nothing."""
        if self.storage.short == self._recorded:
            return ""
        self._recorded = self.storage.short
        event = SHORT if self._recorded else ENOUGH
        journal.record("storage", event, str(self.storage))
        return event

    def spared(self) -> frozenset[str]:
        """What is down while the reserve shrinks in spite of the write block: the mirror fills its site."""
        return frozenset({"mirror"}) if self.storage.critical else frozenset()

    def look(self) -> None:
        """Once: the disk, and the sizes of the logs."""
        self.storage.look(self._bootstrap)
        for log in self._logs:
            rotate(log, written=True)

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            with suppress(OSError):  # a disk that cannot be asked now is asked again
                self.look()
