"""What can go wrong when the embedded stack starts, each with a text a user can act on.

EmbeddedError
├── JavaNotFound     no JVM of version 17 or later, and no bundled one
├── JarsNotResolved  a jar cannot be fetched, or its bytes are not the locked ones
├── PortTaken        another process listens on a port of ours
└── NotReady         a process died or stayed silent past its time
"""


class EmbeddedError(Exception):
    """The embedded stack cannot do what was asked; the text says why and what mends it."""


class JavaNotFound(EmbeddedError):
    """There is no JVM of version 17 or later."""


class JarsNotResolved(EmbeddedError):
    """A jar could not be fetched, or is not the one that the lock names."""


class PortTaken(EmbeddedError):
    """A port is in use by somebody else."""


class NotReady(EmbeddedError):
    """A process did not become ready in time, or ended before it was."""
