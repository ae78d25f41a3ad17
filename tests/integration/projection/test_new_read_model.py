"""A read model is one folder and one line that registers it; no other code changes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import services.projection
from contracts.order.events import OrderShipped
from infra.lab.drills.judgement import digests
from services.kernel.record.envelope import Token
from services.projection.engine.parked_keys import parked_keys
from services.projection.engine.read_model import ReadModel
from services.projection.engine.roles import AUDITOR, open_database
from services.projection.read_models import READ_MODELS, read_model
from tests.integration.infra.test_database_roles import PASSWORDS, address
from tests.integration.projection.conftest import Shop, lived
from tests.integration.projection.processes import (
    WITH_OTHER_MODELS,
    daybook,
    differences,
    running,
    stored_versions,
    tables,
    until,
)
from tests.integration.projection.shop_log import Event, history

FOLDER = {
    "__init__.py": "",
    "schema.sql": """
CREATE TABLE parcel (order_id text PRIMARY KEY, version bigint NOT NULL, carrier text NOT NULL);
""",
    "fold.py": '''
"""Who carries an order's parcel."""

from dataclasses import dataclass

from contracts.order.events import OrderShipped


@dataclass(frozen=True)
class Parcel:
    carrier: str = ""


def fold(row, event, _):
    match event:
        case OrderShipped(carrier="pigeon"):
            raise ValueError("pigeons carry nothing")
        case OrderShipped(carrier=carrier):
            return Parcel(carrier)
        case _:
            return row or Parcel()
''',
    "store.py": '''
"""Parcels in PostgreSQL."""

from services.projection.engine.read_model import Versioned
from services.projection.engine.columns import upsert
from services.projection.parcels.fold import Parcel

COLUMNS = {"order_id": "text", "version": "bigint", "carrier": "text"}


class ParcelStore:
    def __init__(self, schema):
        self._load = f"SELECT * FROM {schema}.parcel WHERE order_id = ANY($1)"
        self._save = upsert(f"{schema}.parcel", COLUMNS, "order_id")
        self._forget = f"DELETE FROM {schema}.parcel WHERE order_id = $1"

    async def load(self, connection, keys):
        rows = await connection.fetch(self._load, keys)
        return {row["order_id"]: Versioned(Parcel(row["carrier"]), row["version"]) for row in rows}

    async def save(self, connection, rows):
        values = [(key, one.version, one.row.carrier) for key, one in rows.items()]
        await connection.execute(self._save, *map(list, zip(*values)))

    async def forget(self, connection, key, _):
        await connection.execute(self._forget, key)


STORE = ParcelStore
''',
    "api.py": '''
"""Parcels over HTTP."""

from pydantic import BaseModel

from services.edge.app import api_router
from services.edge.identity import scopes
from services.projection.reads import OrderId
from services.projection.reads import of_entity
from services.projection.read_models import READ_MODELS
from services.projection.reads import ReadRoute, Reads, missing
from services.projection.engine.visibility import stale

(PARCELS,) = (model for model in READ_MODELS if model.name == "parcels")

router = api_router("parcels", route_class=ReadRoute, dependencies=[scopes("ops:read")])


class ParcelDetails(BaseModel):
    carrier: str


@router.get(
    "/parcels/{order_id}", summary="One parcel", **of_entity("parcel", "The parcel", {"carrier": "post"})
)
async def get_parcel(order_id: OrderId, reads: Reads) -> ParcelDetails:
    async with reads.connection(PARCELS) as connection:
        row = await connection.fetchrow("SELECT * FROM parcels.parcel WHERE order_id = $1", order_id)
        old = await stale(connection, PARCELS, order_id)
    if row is None:
        raise missing("parcel", order_id, PARCELS, old)
    reads.label(old, row["version"])
    return ParcelDetails(carrier=row["carrier"])
''',
}


@pytest.fixture
def parcels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReadModel[Any]]:
    package = tmp_path / "models" / "parcels"
    package.mkdir(parents=True)
    for name, text in FOLDER.items():
        (package / name).write_text(text, "utf-8")
    monkeypatch.setattr(services.projection, "__path__", [*services.projection.__path__, str(package.parent)])
    yield read_model("parcels", "order.events")
    for module in [name for name in sys.modules if name.startswith("services.projection.parcels")]:
        del sys.modules[module]


def registered(shop: Shop) -> dict[str, str]:
    return {"test_folder": str(shop.folder / "models"), "test_register": "parcels"}


async def output_of(shop: Shop, *arguments: str) -> str:
    own = {**registered(shop), "module": WITH_OTHER_MODELS}
    done = await asyncio.to_thread(daybook, shop.kafka, shop.database_url, *arguments, **own)
    assert done.returncode == 0, done.stderr
    return done.stdout


def carried_by_pigeon() -> list[Event]:
    """Complete orders, one of which the example read model cannot fold."""
    events = history(22, 40)
    at = next(number for number, event in enumerate(events) if isinstance(event.body, OrderShipped))
    events[at] = replace(events[at], body=replace(events[at].body, carrier="pigeon"))
    return events


async def test_a_read_model_is_one_folder_and_one_line(shop: Shop, parcels: ReadModel[Any]) -> None:
    events = await lived(shop, 21, 60)
    assert shop.projection.stop() == 0
    own = {**registered(shop), "module": WITH_OTHER_MODELS}
    group = {"projection_group": f"projection-{shop.folder.name}", "session_seconds": "6"}
    with (
        running("project", shop.kafka, shop.database_url, shop.folder / "own.log", **own, **group) as process,
        running("query", shop.kafka, shop.database_url, shop.folder / "query.log", **own) as query,
    ):
        await process.ready()

        async def projected() -> bool:
            return not await differences(shop.connection, events, [parcels])

        await until(projected, "it did not read the log from the beginning")
        more = carried_by_pigeon()
        pigeon = next(event for event in more if getattr(event.body, "carrier", "") == "pigeon").metadata
        await asyncio.to_thread(shop.writer.write_all, more, 20)

        async def parked() -> bool:
            return [(key.read_model, key.key) for key in await parked_keys(shop.connection)] == [
                ("parcels", pigeon.subject)
            ]

        await until(parked, "the order was not parked in it alone")
        await until(lambda: all_but_it(shop, [*events, *more]), "the others did not go on")
        before = await tables(shop.connection, parcels)
        assert (await output_of(shop, "rebuild", "parcels")).startswith("parcels: ")
        assert await tables(shop.connection, parcels) == before
        url = ("--database-url", shop.database_url, "--kafka", shop.kafka)
        await output_of(shop, "parked", "skip", f"parcels:{pigeon.subject}", *url)
        assert await parked_keys(shop.connection) == []
        last = max(event.metadata.version for event in more if event.metadata.subject == pigeon.subject)
        assert await stored_versions(shop.connection, parcels, [pigeon.subject]) == {pigeon.subject: last}

        await query.ready()
        async with httpx.AsyncClient(base_url=query.url) as api:
            shown = (await api.get("/projections")).json()["projections"]
            assert {row["read_model"] for row in shown} == {"parcels", *(model.name for model in READ_MODELS)}
            metrics = (await api.get(f"{query.health}/metrics")).text
            assert 'daybook_position{partition="0",read_model="parcels"' in metrics
            shipped = next(event for event in events if isinstance(event.body, OrderShipped)).metadata
            token = Token(f"order/{shipped.subject}", shipped.version, shipped.id, shipped.epoch).encode()
            path = f"/parcels/{shipped.subject}"
            parcel = await api.get(path, headers={"Consistency-Token": token})
            assert parcel.json() == {"carrier": "post"}
            assert (await api.get(path, headers={"If-None-Match": parcel.headers["etag"]})).status_code == 304
            assert (await api.get("/parcels/none")).json()["code"] == "parcel_not_found"
            assert "/parcels/{order_id}" in (await api.get("/openapi.json")).json()["paths"]


async def test_the_comparison_of_two_sites_reads_every_table(shop: Shop) -> None:
    await lived(shop, 23, 20)
    named = {
        f"{model.name}.{table}" for model in READ_MODELS for table in await tables(shop.connection, model)
    }
    await open_database(shop.connection, PASSWORDS, READ_MODELS)
    # the role of the drills, which may only read
    auditor = address(shop.database_url, AUDITOR, PASSWORDS[AUDITOR])
    assert {key.partition(" ")[0] for key in await digests(auditor)} == named


async def all_but_it(shop: Shop, events: list[Event]) -> bool:
    return not await differences(shop.connection, events)
