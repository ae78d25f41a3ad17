"""`python -m tests.integration.analytics.killed_jobs POINT TOPIC LAKE`: an update of a lake that kills itself.

POINT, in its first batch (`copied`: behind its last):
    writing   files of `events_raw` are being written; the JVM dies as well
    appended  `events_raw` has the batch, no table of a type has it
    half      one table of a type has it, the others do not; the JVM dies as well
    copied    all tables have everything, `commits` does not say so
"""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from analytics.lake import writer
from analytics.lake.tables import COMMITS, RAW, copy_of
from analytics.offsets import topic_ids
from analytics.session import open_session
from analytics.settings import AnalyticsSettings
from infra.base.waiting import wait_until

BATCH = 100  # the first one of both types
SECONDS = 120


def kill_all() -> None:
    os.killpg(0, signal.SIGKILL)


def kill_this() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_while_writing(folder: Path) -> None:
    before = {*folder.rglob("*.parquet")}
    wait_until(
        lambda: not before.issuperset(folder.rglob("*.parquet")), "a file is written", SECONDS, every=0.0005
    )
    kill_all()


def main() -> None:
    point, topic, lake = sys.argv[1:]
    folder, settings = Path(lake), AnalyticsSettings.model_validate({})
    copy = copy_of(folder, topic_ids(settings.kafka, [topic]))
    write = writer._Writer._write
    raw_writes, typed_writes = 0, 0

    def dying(self: Any, rows: DataFrame, name: str, *rest: Any, **more: Any) -> None:
        nonlocal raw_writes, typed_writes
        raw_writes += name == RAW
        first = raw_writes == 1
        if name == COMMITS and point == "copied":
            kill_this()
        if first and name == RAW and point == "writing":
            threading.Thread(target=kill_while_writing, args=[Path(copy) / RAW], daemon=True).start()
        if first and name != RAW:
            typed_writes += 1
            if point == "appended":
                kill_this()
            if point == "half" and typed_writes == 2:
                kill_all()
        write(self, rows, name, *rest, **more)

    vars(writer)["_Writer"]._write = dying
    writer.update(open_session("dying", settings), settings.kafka, folder, print, [topic], BATCH)


if __name__ == "__main__":
    main()
