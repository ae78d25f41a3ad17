"""`daybook streams` on a real log: lists, details, and a decision from end to end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from typer import Exit
from typer.testing import CliRunner, Result

from contracts.kernel.records import SiteRole
from infra.base.settings import StackSettings
from infra.cli import in_containers
from infra.cli.main import command as daybook
from infra.log.control import write_role
from infra.log.streams import stream_lines
from infra.log.topics import create_topics
from infra.stack.compose.engine import Container
from services.kernel.log.control import Control, read_journal
from services.projection.engine.parked_keys import parked_keys
from tests.integration.projection.bad_records import FOREIGN, STOPS, Planted
from tests.integration.projection.conftest import Shop
from tests.integration.projection.processes import applied, differences, until
from tests.integration.projection.shop_log import Event, history
from tests.ports import free_base

STREAM = "order/victim-forged-next-version"


def run(shop: Shop, *words: str) -> Result:
    stores = ["--kafka", shop.kafka]
    if words[0] == "list":
        stores += ["--database-url", shop.database_url]
    return CliRunner().invoke(daybook(), ["streams", *words, *stores], env={"COLUMNS": "200"})


async def succeed(shop: Shop, *words: str) -> Result:
    """Runs the command in a thread, because it has its own event loop; it must succeed."""
    result = await asyncio.to_thread(run, shop, *words)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
async def planted(shop: Shop) -> Planted:
    await asyncio.to_thread(create_topics, shop.kafka)
    await asyncio.to_thread(write_role, shop.kafka, SiteRole("home", "active", 1))
    planted, others = Planted(shop.writer), history(5, 5)
    planted.plant(*FOREIGN, *STOPS)
    shop.writer.write_all(others, 20)
    await until(lambda: applied(shop.connection, others), "the others did not go on")
    return planted


async def test_what_stopped_is_listed_and_shown(shop: Shop, planted: Planted) -> None:
    listed = json.loads((await succeed(shop, "list", "--json")).stdout)
    kinds = {
        stream["stream"]: (stream["kind"], stream["version"], len(stream["read_models"]))
        for stream in listed["stopped"]
    }
    assert kinds == {
        f"order/{planted.lives[kind][0].metadata.subject}": (
            stop,
            planted.records[kind].metadata.version,
            4,
        )
        for kind, stop in STOPS.items()
    }
    assert listed["foreign_count"] == len(listed["foreign"]) == len(FOREIGN)
    table = (await succeed(shop, "list")).stdout
    assert STREAM in table and "its epoch is not open in the partition" in table

    position = listed["foreign"][0]["position"]
    (record,) = json.loads((await succeed(shop, "show", position, "--json")).stdout)
    assert record["position"] == position

    records = json.loads((await succeed(shop, "show", STREAM, "--json", "--all")).stdout)
    own, forged = planted.lives["forged next version"], planted.records["forged next version"]
    meanings = [(record["event_id"], record["meaning"]) for record in records]
    assert meanings[2:5] == [
        (forged.metadata.id, "applied"),
        (own[2].metadata.id, "stops the stream here"),
        (own[3].metadata.id, "waits"),
    ]
    missing = await asyncio.to_thread(run, shop, "show", "order/nobody")
    assert missing.exit_code == 1 and "holds no record of order/nobody" in missing.stderr


@pytest.mark.usefixtures("planted")
async def test_status_counts_them_on_either_stack(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines(command: str) -> list[str]:
        return [
            f"{len(STOPS)} streams have stopped: `{command} streams list`",
            f"{len(FOREIGN)} foreign records were skipped: `{command} streams list`",
        ]

    # a stream at which only tables that are being rebuilt have stopped: `streams list` leaves it out
    await shop.connection.execute(
        "CREATE TEMP TABLE one AS SELECT * FROM parked WHERE kind = 'forked' LIMIT 1;"
        "UPDATE one SET read_model = read_model || '_next', key = 'seen by the next tables alone';"
        "INSERT INTO parked SELECT * FROM one"
    )
    embedded = await asyncio.to_thread(stream_lines, shop.database_url, StackSettings().typed)
    assert embedded == lines("./daybook")

    healthy = Container("shop-postgres-1", "postgres", "running", "healthy", 0, ())
    monkeypatch.setattr(in_containers, "containers", lambda _: [healthy])
    monkeypatch.setattr(in_containers, "database_url", lambda _: shop.database_url)
    settings = StackSettings(stack="compose", home=shop.folder, port_base=free_base())
    with monkeypatch.context() as readable:
        readable.setattr(in_containers, "read_site", lambda _: Control())
        await asyncio.to_thread(in_containers.status, settings)
    assert capsys.readouterr().out.splitlines()[-2:] == lines("./daybook --stack compose")

    with pytest.raises(
        Exit
    ) as ended:  # no broker is at that address: nobody knows whether writes are stopped
        await asyncio.to_thread(in_containers.status, settings)
    shown = capsys.readouterr().out
    assert ended.value.exit_code == 1
    assert "storage: unknown, " in shown and lines("./daybook --stack compose")[0] in shown


async def test_a_decision_makes_it_whole(shop: Shop, planted: Planted) -> None:
    forged = planted.records["forged next version"].metadata
    wrong = await asyncio.to_thread(
        run, shop, "resolve", STREAM, "--version", "3", "--event", "nobody", "--reason", "x", "--yes"
    )
    assert wrong.exit_code == 1 and "no such event of order/victim" in wrong.stderr
    unconfirmed = await asyncio.to_thread(
        run, shop, "resolve", STREAM, "--version", "3", "--event", forged.id, "--reason", "x"
    )
    assert unconfirmed.exit_code == 1, "it must not decide unasked"
    assert (await asyncio.to_thread(read_journal, shop.kafka)).count == 0

    named = ("--version", "3", "--event", forged.id, "--as", "foreign", "--reason", "a test", "--yes")
    await succeed(shop, "resolve", STREAM, *named)
    for kind in STOPS:
        if kind != "forged next version":
            own, version = planted.lives[kind], planted.records[kind].metadata.version
            keep = ("--version", str(version), "--keep", own[version - 1].metadata.id)
            stream = f"order/{own[0].metadata.subject}"
            await succeed(shop, "resolve", stream, *keep, "--reason", "a test", "--yes")

    async def whole() -> bool:
        rows = [*planted.events, *history(5, 5)]
        return not await parked_keys(shop.connection) and not await wrong_rows(shop, rows)

    await until(whole, "the decisions were not applied")
    assert json.loads((await succeed(shop, "list", "--json")).stdout)["stopped"] == []


async def wrong_rows(shop: Shop, events: list[Event]) -> list[Any]:
    """The differing rows without those of the generated history, whose ids change with each call."""
    own = {event.metadata.subject for event in events if event.metadata.subject.startswith("victim")}
    differing = await differences(shop.connection, events)
    return [row for row in differing if "sales_daily.sales_daily" in row or any(key in row for key in own)]


async def test_a_passive_site_decides_nothing(shop: Shop, planted: Planted) -> None:
    await asyncio.to_thread(write_role, shop.kafka, SiteRole("home", "passive", 1))
    forged = planted.records["forged next version"].metadata
    refused = await asyncio.to_thread(
        run, shop, "resolve", STREAM, "--version", "3", "--event", forged.id, "--reason", "x", "--yes"
    )
    await asyncio.to_thread(write_role, shop.kafka, SiteRole("home", "active", 1))
    assert refused.exit_code == 1
    assert refused.stderr.startswith("daybook: this site is passive")
    assert (await asyncio.to_thread(read_journal, shop.kafka)).count == 0
