"""The network link between two sites: a TCP forwarder in front of the broker's listeners for the other site.

`python -m infra.stack.link LISTEN_HOST STATE_FILE PORT=HOST:PORT…`, a process on both platforms. It follows the file,
`{"cut": false, "delay_ms": 0}`: `cut` drops open connections and refuses new ones; `delay_ms` delays every byte, in
both directions.
"""

import asyncio
import contextlib
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec

from infra.base.files import write_whole
from infra.stack.site import Site

POLL_SECONDS = 0.05
CHUNK_BYTES = 65_536
QUEUED_CHUNKS = 64
Target: TypeAlias = tuple[str, int]


class LinkState(msgspec.Struct, frozen=True):
    """How the link treats the connections that it forwards."""

    cut: bool = False
    delay_ms: int = 0

    def __str__(self) -> str:
        return "cut" if self.cut else f"{self.delay_ms} ms late" if self.delay_ms else "whole"


def read_link(file: Path) -> LinkState:
    """The state in `file`; a whole link where there is none."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=LinkState)
    except FileNotFoundError:
        return LinkState()


def set_links(sites: Iterable[Site], state: LinkState) -> None:
    """Change the link of every site: each carries one direction, and follows within `POLL_SECONDS`."""
    for site in sites:
        write_whole(site.link_state, msgspec.json.encode(state))


class Link:
    """Forwards from each port of `ways`, at the address `host`, to its target, according to the file."""

    def __init__(self, host: str, ways: Mapping[int, Target], file: Path) -> None:
        self._host, self._ways, self._file = host, ways, file
        self._state = read_link(file)
        self._open: set[asyncio.StreamWriter] = set()

    async def run(self) -> None:
        """For ever."""
        async with contextlib.AsyncExitStack() as servers:
            for port, target in self._ways.items():
                server = await asyncio.start_server(partial(self._accept, target), self._host, port)
                await servers.enter_async_context(server)
            while True:
                self._state = read_link(self._file)
                if self._state.cut:
                    for writer in self._open:
                        writer.transport.abort()
                await asyncio.sleep(POLL_SECONDS)

    async def _accept(
        self, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._state.cut:
            writer.transport.abort()
            return
        try:
            there_reader, there = await asyncio.open_connection(*target)
        except OSError:  # the broker is down, and so is the link to it
            writer.transport.abort()
            return
        both = {writer, there}
        self._open |= both
        try:
            await asyncio.gather(self._carry(reader, there), self._carry(there_reader, writer))
        finally:
            self._open -= both

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction, until either end closes; then the other end is closed too."""
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUED_CHUNKS)
        delivering = asyncio.create_task(self._deliver(chunks, writer))
        with contextlib.suppress(OSError):  # a reset connection has ended, too
            while chunk := await reader.read(CHUNK_BYTES):
                due = asyncio.get_running_loop().time() + self._state.delay_ms / 1000
                await chunks.put((due, chunk))
        await chunks.put((0.0, b""))
        await delivering

    async def _deliver(
        self, chunks: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        loop, torn = asyncio.get_running_loop(), False
        while True:
            due, chunk = await chunks.get()
            if not chunk:
                break
            if torn:
                continue  # the reader must not block on a full queue
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            try:
                writer.write(chunk)
                await writer.drain()
            except OSError:
                torn = True
        writer.close()


def main() -> None:
    host, state, *ways = sys.argv[1:]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(Link(host, dict(map(_way, ways)), Path(state)).run())


def _way(text: str) -> tuple[int, Target]:
    """`9095=broker:9094`: from this port to that address."""
    listen, _, target = text.partition("=")
    host, _, port = target.rpartition(":")
    return int(listen), (host, int(port))


if __name__ == "__main__":
    main()
