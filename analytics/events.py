"""What staging reads: typed frames of events, wherever they are kept and however they are cut."""

from typing import Protocol

from pyspark.sql import DataFrame


class Events(Protocol):
    """The log, the lake, or either as of some moment."""

    def of(self, type_name: str) -> DataFrame:
        """The events of a type: the columns of the envelope, then the fields of its newest schema."""
        ...
