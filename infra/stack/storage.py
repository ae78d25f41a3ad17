"""Free space on a site's disks, and the write block that keeps the last of it.

A disk that is full to the last byte stops the broker and PostgreSQL. So new commands are refused while there
is still room for what is under way: commands in the log with their events and outcomes, read models that
follow (PostgreSQL writes its log in files of 16 MB), the broker's own topics and compaction, process logs.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from infra.log.asking import ask
from infra.log.control import lift_storage_block, write_storage_block

MEGABYTE = 1_000_000
# Writes resume above the reserve by so much: else they would stop and resume with every file that goes.
RESUME_PARTS = (5, 4)
LOOK_SECONDS = 0.25
# A start needs room: PostgreSQL's first files take 40 MB, and a broker that is started on a full disk empties
# logs. Its recovery fills indexes; an entry that finds no room looks to it like a corrupt log, which it cuts
# off at the beginning (seen on Kafka 4.3.1 and ext4; the log of the cluster's topics was among them).
START_BYTES = 100 * MEGABYTE
# The broker that is asked stands beside who asks.
ANSWER_SECONDS = 2.0


@dataclass(frozen=True)
class Space:
    """The free bytes of the fullest disk, and the folder on it."""

    folder: Path
    free: int

    def __str__(self) -> str:
        return f"{self.folder} has {self.free / MEGABYTE:,.0f} MB ({self.free:,} bytes) free"


def least_space(folders: Sequence[Path]) -> Space:
    """Of the folders that exist; the first one must."""
    found = [Space(folder, shutil.disk_usage(folder).free) for folder in folders if folder.exists()]
    return min(found, key=lambda space: space.free)


def is_short(free: int, reserve: int, was_short: bool) -> bool:
    """Whether writes are refused; once they are, until there is more than the reserve."""
    more, parts = RESUME_PARTS
    return free * parts < reserve * more if was_short else free < reserve


def no_room_to_start(folders: Sequence[Path]) -> str:
    """Why nothing may be started on these disks; empty where there is room."""
    space = least_space(folders)
    if space.free >= START_BYTES:
        return ""
    return f"{space}: a start needs {START_BYTES / MEGABYTE:,.0f} MB"


class StorageWatch:
    """Measures at each `look`; where it is told the site's broker, keeps the block in `site.control` true."""

    def __init__(self, folders: Sequence[Path], reserve: int, *, was_short: bool = False) -> None:
        self.folders, self.reserve = folders, reserve
        self.short, self.critical = was_short, False
        # whether `site.control` has a block; None: not known
        self._blocked: bool | None = None
        self.measure()

    def measure(self) -> None:
        """See what is free now."""
        self.space = least_space(self.folders)
        self.short = is_short(self.space.free, self.reserve, self.short)
        # Half of the reserve is gone although writes are refused: what else fills the log stops too.
        self.critical = self.short and (self.critical or 2 * self.space.free < self.reserve)

    def look(self, bootstrap: str = "") -> None:
        """Measure; write or lift the block at `bootstrap`. A broker that is away is asked again next time."""
        self.measure()
        if not bootstrap or self._blocked == self.short:
            return
        try:
            if self._blocked is None:
                self._blocked = ask(bootstrap, ANSWER_SECONDS).storage is not None
            if self.short and not self._blocked:
                write_storage_block(bootstrap, str(self.space.folder), self.space.free, ANSWER_SECONDS)
            elif self._blocked and not self.short:
                lift_storage_block(bootstrap, ANSWER_SECONDS)
            self._blocked = self.short
        except (KafkaException, TimeoutError):
            self._blocked = None

    def __str__(self) -> str:
        """One line for people; says what is refused while space is short."""
        if not self.short:
            return str(self.space)
        more, parts = RESUME_PARTS
        enough = self.reserve * more // parts
        until = f"{enough / MEGABYTE:,.0f} MB are free"
        return f"{self.space}: writes are refused with 507 storage_full until {until}"
