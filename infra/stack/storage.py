"""Free space on a site's disks, and the write block that keeps the last of it.

A completely full disk stops the broker and PostgreSQL. So new commands are refused while there is still room for
what follows from the accepted ones: events and outcomes, read models (PostgreSQL writes its log in files of 16 MB),
the broker's own topics and compaction, process logs.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from infra.log.control import lift_storage_block, read_site, write_storage_block

MEGABYTE = 1_000_000
# Writes resume only this far above the reserve: otherwise they would stop and resume with every deleted file.
RESUME_PARTS = (5, 4)
LOOK_SECONDS = 0.25
# A start needs room: PostgreSQL's first files take 40 MB, and a broker that starts on a full disk truncates logs. Its
# recovery fills indexes; where an entry finds no room, it takes the log for corrupt and truncates it to its beginning
# (seen on Kafka 4.3.1 and ext4; the log of the cluster's topics was among them).
START_BYTES = 100 * MEGABYTE
# The broker is on the same machine.
ANSWER_SECONDS = 2.0


@dataclass(frozen=True)
class Space:
    """The free bytes of the fullest disk, and the folder on it."""

    folder: Path
    free: int

    def __str__(self) -> str:
        return f"{self.folder} has {self.free / MEGABYTE:,.0f} MB ({self.free:,} bytes) free"


def least_space(folders: Sequence[Path]) -> Space:
    """The least free space among the folders that exist; the first one must."""
    spaces = [Space(folder, shutil.disk_usage(folder).free) for folder in folders if folder.exists()]
    return min(spaces, key=lambda space: space.free)


def no_room_to_start(folders: Sequence[Path]) -> str:
    """The reason why nothing may start on these disks; empty where there is room."""
    space = least_space(folders)
    if space.free >= START_BYTES:
        return ""
    return f"{space}: a start needs {START_BYTES / MEGABYTE:,.0f} MB"


class StorageWatch:
    """Measures at each `look`; with the broker's address it also maintains the block in `site.control`."""

    def __init__(self, folders: Sequence[Path], reserve: int, *, was_short: bool = False) -> None:
        self.folders, self.reserve = folders, reserve
        self.short, self.critical = was_short, False
        # whether `site.control` has a block; None: not known
        self._blocked: bool | None = None
        self.measure()

    def measure(self) -> None:
        """Measure the free space now."""
        self.space = least_space(self.folders)
        # Once writes are refused, until there is more than the reserve.
        more, parts = RESUME_PARTS if self.short else (1, 1)
        self.short = self.space.free * parts < self.reserve * more
        # Half of the reserve is gone although writes are refused: other writers of the log stop, too.
        self.critical = self.short and (self.critical or 2 * self.space.free < self.reserve)

    def look(self, bootstrap: str = "") -> None:
        """Measure; write or lift the block at `bootstrap`. Where the broker is away, the next look repeats it."""
        self.measure()
        if not bootstrap or self._blocked == self.short:
            return
        try:
            if self._blocked is None:
                self._blocked = read_site(bootstrap, ANSWER_SECONDS).storage is not None
            if self.short and not self._blocked:
                write_storage_block(bootstrap, str(self.space.folder), self.space.free, ANSWER_SECONDS)
            elif self._blocked and not self.short:
                lift_storage_block(bootstrap, ANSWER_SECONDS)
            self._blocked = self.short
        except (KafkaException, TimeoutError):
            self._blocked = None

    def __str__(self) -> str:
        """One line for people; while space is short it names what is refused."""
        if not self.short:
            return str(self.space)
        more, parts = RESUME_PARTS
        enough = self.reserve * more // parts
        until = f"{enough / MEGABYTE:,.0f} MB are free"
        return f"{self.space}: writes are refused with 507 storage_full until {until}"
