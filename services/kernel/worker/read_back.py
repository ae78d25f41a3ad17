"""What a partition's owner has read back from its own events topic, beside what it holds in memory.

An owner publishes an entity as soon as its transaction is committed, and reads the events behind it. Between
the two an entity is *ahead* of the log: its last events are unread. A record at the next version while none
is unread was written by somebody else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from services.kernel.log.rule import FIRST_EPOCH


@dataclass(slots=True)
class ReadBack:
    """One partition. `position` is the next offset of its events, `epoch` the one that is open there.

    `stopped` are the keys whose stream forked, or has an event that this code cannot read: nothing is decided
    on them. While it is `restoring`, `skipped_to` is known of keys whose snapshot was taken further on.
    """

    position: int = 0
    epoch: int = FIRST_EPOCH
    restoring: bool = False
    stopped: set[str] = field(default_factory=set)
    skipped_to: dict[str, int] = field(default_factory=dict)
    _unread: dict[str, int] = field(default_factory=dict)
    _ahead_in_snapshot: set[str] = field(default_factory=set)

    def unread(self, key: str) -> int:
        """How many of the entity's last events were not read yet."""
        return self._unread.get(key, 0)

    def published(self, key: str, events: int) -> None:
        """The entity goes ahead of the log."""
        self._unread[key] = self._unread.get(key, 0) + events

    def was_read(self, key: str) -> None:
        """One of the entity's unread events came."""
        if self._unread[key] == 1:
            del self._unread[key]
        else:
            self._unread[key] -= 1

    def restored(self, key: str, read_to: int, unread: int) -> None:
        """A snapshot of the entity was loaded: its events before `read_to` were read when it was taken.

        One that is loaded later has nothing unread: the restore read all that is behind the watermark.
        """
        if self.restoring:
            self.skipped_to[key] = read_to
            if unread:
                self._unread[key] = unread

    def forget(self, key: str) -> None:
        """The entity is folded anew from its first event."""
        self.skipped_to.pop(key, None)
        self._unread.pop(key, None)
        self.stopped.discard(key)

    def end_restoring(self) -> str | None:
        """All that is committed was read. A key whose snapshot is ahead of the log nevertheless, if any."""
        self.restoring = False
        self.skipped_to.clear()
        return next((key for key in self._unread if key not in self.stopped), None)

    def snapshot_taken(self, key: str) -> tuple[int, int]:
        """What a snapshot must say: see `Snapshot.read_to` and `Snapshot.unread`."""
        if unread := self.unread(key):
            self._ahead_in_snapshot.add(key)
        return self.position, unread

    def snapshots_ahead(self) -> set[str]:
        """Whose last snapshot was ahead of the log: a later watermark needs a new one."""
        ahead, self._ahead_in_snapshot = self._ahead_in_snapshot, set()
        return ahead

    def is_ahead(self, key: str) -> bool:
        """Whether the entity's last snapshot was ahead of the log."""
        return key in self._ahead_in_snapshot
