"""TCP ports on loopback: which are free, and which accept connections."""

import socket

from infra.base.errors import PortTaken

HOST = "127.0.0.1"


def require_free(port: int, owner: str, setting: str) -> None:
    """Raise PortTaken unless the port can be bound. The text names its `owner` and the setting that moves it."""
    with socket.socket() as probe:
        # As the servers themselves do: a port whose last connections are only fading away is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as taken:
            raise PortTaken(
                f"port {port} of {owner} is taken: stop the process that uses it, or set {setting}"
            ) from taken


def listening(port: int) -> bool:
    """Whether a process accepts connections on `port`."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
