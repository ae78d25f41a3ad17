"""The base of the edge's errors."""


class EdgeError(Exception):
    """Everything that the edge raises; the package's docstring shows the tree."""
