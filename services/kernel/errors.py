"""The base of every error of the kernel; the tree is in `services/kernel/__init__.py`."""


class KernelError(Exception):
    """The base of what the kernel raises. Its subclasses describe what happened and what follows."""
