"""`python -m tests.integration.analytics.killed_jobs update|rebuild|compact POINT TOPIC LAKE`: a job that kills itself.

POINT, in the second batch of an update or rebuild, or in the one part of a compaction:
    writing   Parquet files are being written (no compaction); the JVM dies as well
    written   the part exists, the manifest does not name it; the JVM outlives this process
    switched  the manifest names it, Spark's checkpoint does not; the JVM dies as well
"""

import os
import signal
import sys
import threading
from pathlib import Path

from analytics.lake import writer
from analytics.lake.manifest import REBUILDING, Manifest, write_manifest
from analytics.session import open_session
from analytics.settings import AnalyticsSettings
from infra.base.waiting import wait_until

BATCH = 40
SECONDS = 120


def kill_all() -> None:
    os.killpg(0, signal.SIGKILL)


def kill_this() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def there(folder: Path, pattern: str) -> bool:
    try:
        return any(folder.glob(pattern))
    except FileNotFoundError:  # Spark moved a folder that was being looked into
        return False


def kill_while_writing(folder: Path, first_batch: str) -> None:
    wait_until(
        lambda: there(folder, first_batch) and there(folder, "aside/**/*.parquet"),
        "the lake is written beside its first batch",
        SECONDS,
        every=0.0005,
    )
    kill_all()


def main() -> None:
    step, point, topic, lake = sys.argv[1:]
    folder, settings = Path(lake), AnalyticsSettings.model_validate({})
    switches = 0

    def dying(manifest: Manifest, file: Path) -> None:
        nonlocal switches
        switches += 1
        last = step == "compact" or switches == 2
        if last and point == "written":
            kill_this()
        write_manifest(manifest, file)
        if last and point == "switched":
            kill_all()

    vars(writer)["write_manifest"] = dying
    session = open_session("dying", settings)
    if point == "writing":
        first_batch = REBUILDING if step == "rebuild" else "parts/*"
        threading.Thread(target=kill_while_writing, args=[folder, first_batch], daemon=True).start()
    if step == "compact":
        writer.compact(session, folder)
    else:
        copy = writer.rebuild if step == "rebuild" else writer.update
        copy(session, settings.kafka, folder, print, [topic], BATCH)


if __name__ == "__main__":
    main()
