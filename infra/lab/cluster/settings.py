"""The shop's settings when its log is the cluster."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.base.settings import StackSettings


class ClusterSettings(StackSettings):
    """As of one site, but `kafka` is the bootstrap list of the cluster's brokers."""

    bootstrap: Annotated[str, Field(min_length=1)]

    @property
    def kafka(self) -> str:
        return self.bootstrap
