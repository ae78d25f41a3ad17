"""The base of the projection's errors."""


class ProjectionError(Exception):
    """Everything that the projection raises; the package's docstring shows the tree."""
