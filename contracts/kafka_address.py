"""The address of a Kafka cluster, as settings and commands pass it on.

It is `host:port[,host:port…]`, in clear text, or `sasl_ssl://host:port[,…]?identity=FILE`: TLS, and the FILE says who
connects (`services/kernel/log/clients.py`). So an address contains everything that a client needs, but no secret.
"""

from pathlib import Path

SCHEME, IDENTITY = "sasl_ssl://", "?identity="


def secured(bootstrap: str, identity: Path) -> str:
    """The address of these brokers for whoever has the file `identity`."""
    return f"{SCHEME}{bootstrap}{IDENTITY}{identity.absolute()}"


def bootstrap_of(address: str) -> str:
    """`host:port` of each broker, separated by commas."""
    return address.removeprefix(SCHEME).partition(IDENTITY)[0]


def identity_file(address: str) -> Path | None:
    """None in clear text. Raises ValueError for an address that names no file."""
    if not address.startswith(SCHEME):
        return None
    file = address.partition(IDENTITY)[2]
    if not file:
        raise ValueError(f"a Kafka address is host:port or {SCHEME}host:port{IDENTITY}FILE, not {address}")
    return Path(file)


def sibling(address: str, user: str) -> str:
    """The same brokers for `user`, whose file lies beside the address's own; an address in clear text stays."""
    file = identity_file(address)
    return address if file is None else secured(bootstrap_of(address), file.with_name(f"{user}.json"))
