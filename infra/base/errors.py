"""The base of every error of `infra`, and those that more than one room raises. The tree is in `infra/__init__.py`."""


class DaybookError(Exception):
    """Something expected went wrong. The text says what happened and what to do; a command prints it as one line."""


class JavaNotFound(DaybookError):
    """There is no JVM of version 17 or later, and no bundled one."""


class JarsNotResolved(DaybookError):
    """A jar could not be fetched, or its bytes are not the locked ones."""


class PortTaken(DaybookError):
    """Another process listens on a port that a stack needs."""


class OtherCommand(DaybookError):
    """Another command that changes the shop is running."""


class NotDone(DaybookError):
    """What an operator wants cannot begin now, or a step of it did not finish; the text says why and what to do."""


class NotReady(DaybookError):
    """A process did not become ready in time, or ended before it was."""
