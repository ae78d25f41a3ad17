"""The end of the projection: the error that ended it decides the exit code, not a source that does not stop."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from services.projection.engine.projection import running
from services.projection.engine.read_model import OtherCode
from services.projection.engine.source import Source

STOP_SECONDS = 0.01


class Hanging:
    """A source that starts and never stops."""

    async def start(self) -> None: ...

    async def stop(self) -> None:
        await asyncio.Event().wait()


SOURCE = cast(Source, Hanging())


async def test_a_source_that_does_not_stop_leaves_the_reason_as_it_is() -> None:
    with pytest.raises(OtherCode):
        async with running(SOURCE, STOP_SECONDS):
            raise OtherCode("other code made the tables")


async def test_without_another_error_it_is_the_reason() -> None:
    with pytest.raises(TimeoutError):
        async with running(SOURCE, STOP_SECONDS):
            pass
