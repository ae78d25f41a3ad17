"""The way in to the tools of profiles, which ask for no password themselves: `python -m infra.stack.compose.gate`.

Prometheus, Spark's page, Apicurio and Kafka Connect's REST are not published. This is, at a port for each, and lets a
connection through whose first request has the password (HTTP Basic, RFC 7617; any user). What follows on the same
connection comes from the same client.
"""

import asyncio
import signal
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from hmac import compare_digest

from pydantic import SecretStr

from infra.base.settings import FromEnvironment

# The tools by the port at which the gate listens for each.
TOOLS: Mapping[int, tuple[str, int]] = {
    8005: ("apicurio", 8080),
    8006: ("connect", 8083),
    8008: ("spark-master", 8080),
    8009: ("prometheus", 9090),
}
HEAD_BYTES, HEAD_SECONDS, CHUNK_BYTES = 32_768, 10.0, 65_536
_UNAUTHORIZED = (
    b"HTTP/1.1 401 Unauthorized\r\n"
    b'WWW-Authenticate: Basic realm="tools of the shop", charset="UTF-8"\r\n'
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)
_UNREACHABLE = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class GateSettings(FromEnvironment):
    tools_password: SecretStr


def knows(head: bytes, password: str) -> bool:
    """Whether the head of a request has the password."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        scheme, _, credentials = value.strip().partition(b" ")
        if name.lower() == b"authorization" and scheme.lower() == b"basic":
            try:
                given = b64decode(credentials.strip(), validate=True).partition(b":")[2]
            except NotBase64:
                return False
            return compare_digest(given, password.encode())
    return False


class Gate:
    """Lets those who have the password through to `tool`, a host and a port."""

    def __init__(self, tool: tuple[str, int], password: str) -> None:
        self._tool, self._password = tool, password

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            if knows(head, self._password):
                await self._through(head, reader, writer)
            else:
                writer.write(_UNAUTHORIZED)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that does not send a request, or that leaves
        finally:
            writer.close()

    async def _through(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_tool, to_tool = await asyncio.open_connection(*self._tool)
        except OSError:
            writer.write(_UNREACHABLE)
            return
        try:
            to_tool.write(head)
            await asyncio.gather(_pass_on(reader, to_tool), _pass_on(from_tool, writer))
        finally:
            to_tool.close()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Everything up to the end of `source`; then `target` learns of the end."""
    while data := await source.read(CHUNK_BYTES):
        target.write(data)
        await target.drain()
    if target.can_write_eof():
        target.write_eof()


async def serve(password: str) -> None:
    """Until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    for port, tool in TOOLS.items():
        await asyncio.start_server(Gate(tool, password), port=port, limit=HEAD_BYTES)
    await stopping.wait()


if __name__ == "__main__":
    asyncio.run(serve(GateSettings().tools_password.get_secret_value()))  # type: ignore[call-arg] # from a file
