"""Where a test's own processes and stacks may listen."""

from __future__ import annotations

import itertools
import random
import socket
from collections import deque

from infra.base.errors import PortTaken
from infra.base.ports import HOST, require_free
from infra.base.settings import AWAY_PORTS, OFFSETS

# All below the ports that the kernel gives to outgoing connections (Linux: from 32768): one of those could take a port
# after it was found free and before its server binds it.
_single = itertools.cycle(random.sample(range(10_000, 20_000), 10_000))
# As far apart as two sites' ports reach.
FIRST, LAST, STEP = 20_000, 32_000, 400
STACKS = 4  # of one process at a time

_marks: deque[socket.socket] = deque()


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct free ports; this process does not get them again soon."""
    return tuple(itertools.islice((port for port in _single if _free(port)), count))


def _free(port: int) -> bool:
    try:
        require_free(port, "a test", "")
    except PortTaken:
        return False
    return True


def free_base() -> int:
    """A DAYBOOK_PORT_BASE with the ports of both sites free.

    A stack takes its ports only some time after they were found free. Until then the last port of its range
    is bound: another process of this run, or another run on this machine, passes the range over.
    """
    for base in range(FIRST, LAST, STEP):
        mark = socket.socket()
        try:
            mark.bind((HOST, base + STEP - 1))
            for offset in OFFSETS.values():
                require_free(base + offset, "a test", "")
                require_free(base + AWAY_PORTS + offset, "a test", "")
        except (OSError, PortTaken):
            mark.close()
            continue
        _marks.append(mark)
        if len(_marks) > STACKS:
            _marks.popleft().close()
        return base
    raise AssertionError("no free range of ports")
