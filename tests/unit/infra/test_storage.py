"""What a full disk means for the supervisor's files, secrets and logs, and when it counts as full."""

import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from threading import Semaphore

import pytest

from infra.base.files import KEPT_FILES, older, rotate
from infra.base.journal import EVENTS_BYTES, Phase, StackJournal, StackState
from infra.base.settings import ROOT, StackSettings
from infra.stack.embedded.stack import log_file
from infra.stack.embedded.supervisor import ENOUGH, SHORT, Housekeeping
from infra.stack.storage import StorageWatch

NO_SPACE = "/dev/full"  # every write to it finds no space left
Usage = namedtuple("Usage", "total used free")


class Disks:
    """Free bytes by folder, as a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free: dict[Path, int] = {}
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(0, 0, self.free[folder]))


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> Disks:
    return Disks(monkeypatch)


def test_space_is_short_below_the_reserve_until_there_is_a_quarter_more(disks: Disks, tmp_path: Path) -> None:
    disks.free = {tmp_path: 1_000}
    watch = StorageWatch([tmp_path], 1_000)
    seen = []
    for free in (1_000, 999, 500, 499, 1_000, 1_249, 1_250, 1_000, 999):
        disks.free[tmp_path] = free
        watch.measure()
        seen.append((watch.short, watch.critical))
    none, short, critical = (False, False), (True, False), (True, True)
    assert seen == [none, short, short, critical, critical, critical, none, none, short]


def test_the_fullest_disk_counts_and_is_named(disks: Disks, tmp_path: Path) -> None:
    postgres = tmp_path / "postgres"
    postgres.mkdir()
    disks.free = {tmp_path: 9_000_000_000, postgres: 118_231_040}
    watch = StorageWatch([tmp_path, tmp_path / "absent", postgres], 512_000_000)
    assert watch.short
    assert str(watch) == (
        f"{postgres} has 118 MB (118,231,040 bytes) free: writes are refused with 507 storage_full until "
        "640 MB are free"
    )
    disks.free[postgres] = 700_000_000
    watch.measure()
    assert str(watch) == f"{postgres} has 700 MB (700,000,000 bytes) free"


def test_the_supervisor_is_told_of_each_change_once(disks: Disks, tmp_path: Path) -> None:
    disks.free = {tmp_path: 1_000_000_000}
    house, journal = Housekeeping(StackSettings(home=tmp_path), []), StackJournal(tmp_path)
    recorded = []
    for free in (1_000_000_000, 400_000_000, 300_000_000, 200_000_000, 1_000_000_000):
        disks.free[tmp_path] = free
        house.storage.measure()
        recorded.append((house.record(journal), house.spared()))
    nothing, mirror = frozenset[str](), frozenset({"mirror"})
    assert recorded == [("", nothing), (SHORT, nothing), ("", nothing), ("", mirror), (ENOUGH, nothing)]
    assert [event["event"] for event in journal.events()] == [SHORT, ENOUGH]


def test_a_disk_that_cannot_be_asked_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house, looks = Housekeeping(StackSettings(home=tmp_path), []), Semaphore(0)

    def fails(_: Path) -> None:
        looks.release()
        raise OSError("input/output error")

    monkeypatch.setattr(shutil, "disk_usage", fails)
    house.start()
    again = [looks.acquire(timeout=10) for _ in range(2)]
    house.stop()
    assert again == [True, True]


def test_events_that_find_no_room_are_written_later(tmp_path: Path) -> None:
    journal, file = StackJournal(tmp_path), tmp_path / "events.jsonl"
    file.symlink_to(NO_SPACE)
    journal.record("broker", "died", "the disk is full")
    journal.record("broker", "started")
    file.unlink()
    file.write_text('{"at": "2026-11-22", "proc')  # what did find room
    journal.record("broker", "ready")
    assert [event["event"] for event in journal.events()] == ["died", "started", "ready"]


def test_a_state_that_finds_no_room_leaves_the_one_before(tmp_path: Path) -> None:
    journal, before = StackJournal(tmp_path), StackState(Phase.STARTING, 42, 27400)
    assert journal.write(before)
    (tmp_path / "state.fresh").symlink_to(NO_SPACE)
    assert not journal.write(StackState(Phase.RUNNING, 42, 27400))
    assert journal.read() == before


def test_long_files_are_put_aside_and_the_oldest_dropped(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    for number in range(KEPT_FILES + 2):
        file.write_text(f"{number} and more")
        rotate(file, 5)
        assert not file.exists()
    kept = [older(file, number).read_text()[0] for number in range(1, KEPT_FILES + 1)]
    assert kept == ["4", "3", "2"]
    assert not older(file, KEPT_FILES + 1).exists()


def test_a_file_that_is_written_to_goes_on_from_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    with file.open("ab", buffering=0) as written:
        written.write(b"before")
        rotate(file, 5, written=True)
        written.write(b"after")
        rotate(file, 5, written=True)
    assert (file.read_text(), older(file, 1).read_text()) == ("after", "before")


def test_events_are_kept_over_rotations_up_to_a_number_of_files(tmp_path: Path) -> None:
    journal = StackJournal(tmp_path)
    journal.record("broker", "first")
    for number in range(2 * (KEPT_FILES + 2)):
        journal.record("broker", f"{number}", "x" * (EVENTS_BYTES // 2 + 1))
    events = [event["event"] for event in journal.events()]
    assert events[-4:] == [str(2 * (KEPT_FILES + 2) - back) for back in (4, 3, 2, 1)]
    assert "first" not in events
    assert len(list(tmp_path.glob("events.jsonl*"))) <= KEPT_FILES + 1


def test_the_logs_of_the_members_and_the_supervisor_are_rotated(tmp_path: Path) -> None:
    settings = StackSettings(home=tmp_path)
    logs = [log_file(settings, name) for name in ("broker", "supervisor")]
    settings.logs.mkdir()
    for log in logs:
        with log.open("wb") as out:
            out.truncate(17 * 1024 * 1024)
    house = Housekeeping(settings, ["broker"])
    house.look()
    assert [log.stat().st_size for log in logs] == [0, 0]
    assert all(older(log, 1).exists() for log in logs)


def run(code: str, stdout: int | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, text=True, stdout=stdout, stderr=subprocess.PIPE, check=False)


# A process that may not write one byte to a file finds the disk full, in other words.
NO_BYTE = """
import resource, signal
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
"""


def test_a_secret_is_never_half_there(tmp_path: Path) -> None:
    make = f"from infra.base.files import kept_secret; kept_secret(Path({str(tmp_path / 'key')!r}))"
    assert "File too large" in run(NO_BYTE + make).stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_stays_where_there_is_no_room_for_its_copy(tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text("before")
    put_aside = f"from infra.base.files import rotate; rotate(Path({str(file)!r}), 5, written=True)"
    assert run(NO_BYTE + put_aside).returncode == 0
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_log_line_that_finds_no_room_ends_nothing() -> None:
    code = """
import structlog
from services.edge.json_logs import configure_logging
configure_logging("test")
structlog.get_logger().info("one line")
structlog.get_logger().info("another")
print("still here", file=__import__("sys").stderr)
"""
    with Path(NO_SPACE).open("w") as full:
        done = run(f"import sys; sys.stdout.reconfigure(write_through=True)\n{code}", stdout=full.fileno())
    assert (done.returncode, done.stderr) == (0, "still here\n")
