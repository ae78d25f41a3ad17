"""A rebuild with changed code while the old code serves, and back: one of them is live, complete and correct."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import services.projection.stock
from services.kernel.exit_codes import EXIT_REBUILT
from services.projection.read_models import READ_MODELS, STOCK
from services.projection.stock.store import stock_of
from tests.integration.projection.conftest import Shop
from tests.integration.projection.processes import (
    PATIENCE,
    WITH_OTHER_MODELS,
    Process,
    daybook,
    differences,
    folded,
    running,
    until,
)
from tests.integration.projection.shop_log import Event, history

BEFORE, AFTER = "the code before", "the code after"
# A column and its fold: the number of a SKU's movements, which is its version.
CHANGES = {
    "schema.sql": [
        ("    reserved   bigint ", "    movements  bigint      NOT NULL,\n    reserved   bigint ")
    ],
    "store.py": [('    "reserved": "bigint",', '    "movements": "bigint",\n    "reserved": "bigint",')],
    "fold.py": [
        ("    reserved: int = 0", "    movements: int = 0\n    reserved: int = 0"),
        ("replace(before, ", "replace(before, movements=before.movements + 1, "),
    ],
}
STRIDE = 3  # statements from one kill to the next


class Changing:
    """A shop with two versions of the code of `stock`; `code` is the one that a process runs."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.events = shop, list[Event]()
        self.folder = shop.folder / "models"
        shutil.copytree(Path(services.projection.stock.__file__).parent, self.folder / "stock")
        for name, edits in CHANGES.items():
            file = self.folder / "stock" / name
            text = file.read_text("utf-8")
            for old, new in edits:
                assert text.count(old) == 1, (name, old)
                text = text.replace(old, new)
            file.write_text(text, "utf-8")

    def settings(self, code: str) -> dict[str, str]:
        return {"test_folder": str(self.folder), "module": WITH_OTHER_MODELS} if code is AFTER else {}

    @contextmanager
    def serving(self, room: str, code: str) -> Iterator[Process]:
        group = {"projection_group": f"projection-{self.shop.folder.name}", "session_seconds": "6"}
        log = self.shop.folder / f"{room}.log"
        own = self.settings(code) | group
        with running(room, self.shop.kafka, self.shop.database_url, log, **own) as process:
            yield process

    def rebuild(self, code: str, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
        own = {"module": WITH_OTHER_MODELS, "test_folder": str(self.folder / "none")} | self.settings(code)
        arguments = ("rebuild", "stock", *options)
        return daybook(self.shop.kafka, self.shop.database_url, *arguments, **own, **settings)

    async def written(self, seed: int, orders: int) -> None:
        events = history(seed, orders)
        self.events += events
        await asyncio.to_thread(self.shop.writer.write_all, events, 5, spoil=0.2)

    async def live(self) -> str:
        comment = "SELECT obj_description('stock'::regnamespace, 'pg_namespace')"
        return BEFORE if await self.shop.connection.fetchval(comment) == STOCK.fingerprint else AFTER

    async def wrong(self) -> list[str]:
        """The rows of the live tables that differ from the fold of the log with their own code."""
        if await self.live() is BEFORE:
            return await differences(self.shop.connection, self.events, [STOCK])
        expected = folded(STOCK, self.events)
        rows = await self.shop.connection.fetch("SELECT * FROM stock.stock")
        stored = {row["sku"]: stock_of(row) for row in rows}
        return [
            *(sku for sku, row in expected.items() if stored.get(sku) != row),
            *(row["sku"] for row in rows if row["movements"] != row["version"]),
        ]

    async def whole(self, code: str) -> None:
        """Waits until the live tables are those of `code` and contain every event."""

        async def met() -> bool:
            return not await self.wrong()

        await until(met, "the live tables are not the fold of the log")
        assert await self.live() is code


@pytest.fixture
def changing(shop: Shop) -> Changing:
    return Changing(shop)


async def ended(process: Process) -> int:
    code = await asyncio.to_thread(process.child.wait, PATIENCE)
    if code != EXIT_REBUILT:
        print(process.tail())  # pytest shows it when the assertion fails
    return code


async def test_changed_code_takes_over_under_load_and_gives_back(changing: Changing) -> None:
    shop = changing.shop
    await changing.written(31, 120)
    with changing.serving("query", BEFORE) as query:
        await query.ready()
        writing = asyncio.create_task(changing.written(32, 300))
        done = await asyncio.to_thread(changing.rebuild, AFTER)
        assert done.returncode == 0, done.stderr
        assert [await ended(shop.projection), await ended(query)] == [EXIT_REBUILT, EXIT_REBUILT]
    shop.projection.start()
    assert await ended(shop.projection) == EXIT_REBUILT, "the code before served the tables of the code after"

    with changing.serving("project", AFTER) as projection, changing.serving("query", AFTER) as query:
        await projection.ready()
        await query.ready()
        await writing
        await changing.whole(AFTER)
        async with httpx.AsyncClient(base_url=query.url) as api:
            assert len((await api.get("/stock", params={"limit": "500"})).json()["stock"]) == len(
                folded(STOCK, changing.events)
            )

            shown = (await api.get("/projections")).json()["projections"]
            assert [row["read_model"] for row in shown] == sorted(model.name for model in READ_MODELS)

        refused = await asyncio.to_thread(changing.rebuild, AFTER, "--rollback")
        assert refused.returncode == 1
        assert "other code made the previous tables" in refused.stderr.replace("\n", " ")
        writing = asyncio.create_task(changing.written(33, 200))
        done = await asyncio.to_thread(changing.rebuild, BEFORE, "--rollback")
        assert done.returncode == 0, done.stderr
        assert [await ended(projection), await ended(query)] == [EXIT_REBUILT, EXIT_REBUILT]
    with changing.serving("project", BEFORE) as projection:
        await projection.ready()
        await writing
        await changing.whole(BEFORE)
        # and forward again, without another rebuild
        assert (await asyncio.to_thread(changing.rebuild, AFTER, "--rollback")).returncode == 0
        assert await ended(projection) == EXIT_REBUILT
    await changing.whole(AFTER)


@pytest.mark.full
@pytest.mark.parametrize("options", [(), ("--rollback",)], ids=["rebuild", "rollback"])
async def test_killed_at_every_step_one_of_both_is_live_and_whole(
    changing: Changing, options: tuple[str, ...]
) -> None:
    shop = changing.shop
    await changing.written(41, 60)
    await changing.whole(BEFORE)
    old, new = BEFORE, AFTER
    if options:
        assert changing.rebuild(AFTER).returncode == 0
        await ended(shop.projection)
        old, new = AFTER, BEFORE
    kills, killed = 0, True
    with changing.serving("project", old) as projection:
        await projection.ready()
        while killed and await changing.live() is old:
            writing = asyncio.create_task(changing.written(100 + kills, 3))
            statements = str(1 + kills * STRIDE)
            done = await asyncio.to_thread(changing.rebuild, new, *options, test_statements=statements)
            await writing
            killed = done.returncode < 0
            assert killed or done.returncode == 0, done.stderr
            kills += killed
            if await changing.live() is old:
                assert projection.child.poll() is None, f"the code that is live ended: {projection.tail()}"
                await changing.whole(old)
        assert await ended(projection) == EXIT_REBUILT
    assert kills >= 10
    with changing.serving("project", new) as projection:
        await projection.ready()
        await changing.whole(new)
