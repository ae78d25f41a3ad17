"""The base of the errors of analytics."""


class AnalyticsError(Exception):
    """Everything that analytics raises; the package's docstring shows the tree."""
