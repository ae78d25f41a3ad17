"""Beside a broker in a container: refuses writes while the disk of the volumes is nearly full.

`python -m infra.stack.compose.storage`. Each volume is a folder below DAYBOOK_DISKS.
"""

import sys
import threading
import time
from pathlib import Path
from typing import Annotated

import structlog
from prometheus_client import Gauge
from pydantic import Field

from infra.base.settings import FromEnvironment
from infra.stack.storage import LOOK_SECONDS, MEGABYTE, StorageWatch
from services.edge.app import health_application
from services.edge.json_logs import configure_logging
from services.edge.server import end_process, serve

FREE = Gauge("daybook_storage_free_bytes", "Free on the fullest disk of the stores")
SHORT = Gauge("daybook_storage_short", "1 while writes are refused because the disk is nearly full")

log = structlog.get_logger()


class StorageSettings(FromEnvironment):
    """Environment variables: DAYBOOK_ before each."""

    kafka: str
    disks: Path = Path("/disks")
    storage_reserve_mb: Annotated[int, Field(ge=128)] = 512
    health_host: str = "127.0.0.1"
    health_port: int = 8090
    log_level: str = "INFO"


def follow(watch: StorageWatch, bootstrap: str) -> None:
    """For the process's life."""
    try:
        while True:
            was_short = watch.short
            watch.look(bootstrap)
            if watch.short != was_short:
                log.warning("storage_short" if watch.short else "storage_enough", storage=str(watch))
            time.sleep(LOOK_SECONDS)
    except Exception as error:
        end_process(f"the disk cannot be watched: {error!r}")


def main() -> int:
    """The process's exit code."""
    settings = StorageSettings()  # type: ignore[call-arg] # from the environment
    configure_logging("storage", settings.log_level)
    watch = StorageWatch(sorted(settings.disks.iterdir()), settings.storage_reserve_mb * MEGABYTE)
    FREE.set_function(lambda: watch.space.free)
    SHORT.set_function(lambda: watch.short)
    threading.Thread(target=follow, args=(watch, settings.kafka), name="storage", daemon=True).start()
    return serve(health_application(lambda: None), settings.health_host, settings.health_port)


if __name__ == "__main__":
    sys.exit(main())
