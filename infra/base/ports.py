"""TCP ports on loopback: is one taken, is somebody listening, which one is free."""

import socket

from infra.base.errors import PortTaken

HOST = "127.0.0.1"


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct ports that nobody uses, for tests; the kernel does not hand them out again at once."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return tuple(each.getsockname()[1] for each in sockets)
    finally:
        for each in sockets:
            each.close()


def require_free(port: int, owner: str, setting: str) -> None:
    """Raise PortTaken, naming who wants the port and the setting that moves it, unless it can be bound."""
    with socket.socket() as probe:
        # As the servers themselves do: a port whose last connections are only fading away is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as taken:
            raise PortTaken(f"port {port} of {owner} is taken: stop who uses it, or set {setting}") from taken


def listening(port: int) -> bool:
    """True when somebody accepts connections on `port`."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
