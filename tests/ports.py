"""Where a stack of a test's own may listen."""

from __future__ import annotations

import socket
from collections import deque

from infra.base.errors import PortTaken
from infra.base.ports import HOST, require_free
from infra.base.settings import AWAY_PORTS, OFFSETS

# Below the ports that the kernel gives to clients; as far apart as two sites' ports reach.
FIRST, LAST, STEP = 12_000, 32_000, 400
STACKS = 4  # of one process at a time

_marks: deque[socket.socket] = deque()


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
