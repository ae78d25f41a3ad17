"""Where a stack of a test's own may listen."""

import os

from infra.embedded.errors import PortTaken
from infra.embedded.ports import require_free
from infra.settings import AWAY_PORTS, OFFSETS

# Below the ports that the kernel gives to clients; as far apart as two sites' ports reach.
FIRST, LAST, STEP = 12_000, 32_000, 400


def free_base() -> int:
    """A DAYBOOK_PORT_BASE with the ports of both sites free.

    Tests that run in parallel look in different places: a port is taken only some time after it was found.
    """
    worker, workers = _worker()
    for base in range(FIRST + worker * STEP, LAST, workers * STEP):
        try:
            for offset in OFFSETS.values():
                require_free(base + offset, "a test", "")
                require_free(base + AWAY_PORTS + offset, "a test", "")
        except PortTaken:
            continue
        return base
    raise AssertionError("no free range of ports")


def _worker() -> tuple[int, int]:
    """Which of how many processes of pytest-xdist this is."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return int(name.removeprefix("gw")), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
