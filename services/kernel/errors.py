"""The base of every error of the kernel; the tree is in `services/kernel/__init__.py`."""


class KernelError(Exception):
    """What the kernel raises. Its subclasses say what happened, and what follows."""
