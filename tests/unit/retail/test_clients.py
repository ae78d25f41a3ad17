"""The load generator: patience, repeats, pace, and clients that follow a failover."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from infra.base.ports import HOST
from infra.base.waiting import wait_until
from infra.lab.load import clients
from infra.lab.load import load as generator
from infra.lab.load.clients import Api, Client, NoResponse, NothingThere, Pace, Request, Urls, send_all
from infra.lab.load.load import Load
from infra.lab.load.orders import SKUS, Shopping
from infra.lab.retail.steps import request_of
from tests.ports import free_ports
from tests.unit.retail.sheet import ALWAYS, book

URL = f"http://{HOST}"


def any_request() -> Request:
    step = next(iter(book("540000,A1,MUG,10,2010-12-01 09:00:00,1.0,7.0,France").load(ALWAYS).steps()))
    return request_of(step)


async def test_where_nothing_listens_it_gives_up_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "FIRST_PATIENCE_SECONDS", 0.2)
    urls = Urls(dict.fromkeys(Api, f"{URL}:{free_ports(1)[0]}"))
    began = time.perf_counter()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(NothingThere, match="Cannot connect"):
            await Client(session, {"home": urls}, "home").send(any_request())
    assert time.perf_counter() - began < 5


async def test_what_has_answered_once_is_given_all_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "FIRST_PATIENCE_SECONDS", 0.0)
    shop = web.Application()
    runner = web.AppRunner(shop)
    await runner.setup()
    port = free_ports(1)[0]
    await web.TCPSite(runner, HOST, port).start()
    async with aiohttp.ClientSession() as session:
        sites = {"home": Urls(dict.fromkeys(Api, f"{URL}:{port}"))}
        client = Client(session, sites, "home", patience=0.5)
        assert (await client.send(any_request())).outcome == "404"
        await runner.cleanup()
        with pytest.raises(NoResponse) as gone:
            await client.send(any_request())
    assert not isinstance(gone.value, NothingThere)


async def test_chains_are_sent_side_by_side_and_each_in_its_order() -> None:
    sent: list[str] = []
    under_way = most = 0

    async def send(name: str) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        sent.append(name)
        under_way -= 1

    await send_all([[f"{chain}{step}" for step in range(3)] for chain in "abcd"], send, 2, Pace(None))
    assert most == 2
    assert len(sent) == 12
    assert [name for name in sent if name.startswith("c")] == ["c0", "c1", "c2"]


async def test_the_first_error_ends_all() -> None:
    async def send(_: str) -> None:
        raise NoResponse("none")

    with pytest.raises(NoResponse):
        await send_all([["a", "b"], ["c"]], send, 2, Pace(None))


async def test_a_pace_bounds_the_commands_per_second() -> None:
    began = time.monotonic()

    async def send(_: int) -> None:
        pass

    await send_all([[1, 2], [3], [4]], send, 4, Pace(20))
    assert time.monotonic() - began >= 4 / 20 - 0.01


@contextmanager
def site(status: int, seen: list[str]) -> Iterator[Urls]:
    """A site whose APIs respond with `status` to every command, in a thread of their own."""
    port, ready, end = free_ports(1)[0], threading.Event(), threading.Event()

    async def respond(request: web.Request) -> web.Response:
        seen.append(request.headers["Idempotency-Key"])
        return web.json_response({"version": 1, "code": "site_quiesced"}, status=status)

    async def serve() -> None:
        shop = web.Application()
        shop.router.add_post("/{path:.*}", respond)
        runner = web.AppRunner(shop)
        await runner.setup()
        await web.TCPSite(runner, HOST, port).start()
        ready.set()
        await asyncio.to_thread(end.wait)
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait(10)
    try:
        yield Urls(dict.fromkeys(Api, f"{URL}:{port}"))
    finally:
        end.set()
        thread.join()


def test_clients_repeat_their_commands_at_the_site_that_they_are_sent_to(tmp_path: Path) -> None:
    refused: list[str] = []
    accepted: list[str] = []
    with site(503, refused) as blocked, site(201, accepted) as active:
        sites = {"blocked": blocked, "active": active}
        with Load(sites, "active", Shopping(1, "x"), tmp_path / "responses.jsonl", rate=50) as load:
            assert len(load.responses) == len(SKUS)
            load.switch("blocked")
            wait_until(lambda: refused, "a command is refused", 10)
            load.switch("active")
            assert load.finish() == []
    assert {response.outcome for response in load.responses} == {"accepted"}
    assert {response.site for response in load.responses} == {"active"}
    assert any(response.repeats for response in load.responses)
    assert set(refused) <= set(accepted)
    assert len((tmp_path / "responses.jsonl").read_text().splitlines()) == len(load.responses)


def test_commands_without_an_outcome_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    with site(503, refused) as blocked, site(201, []) as active:
        sites = {"blocked": blocked, "active": active}
        with Load(sites, "active", Shopping(1, "x"), tmp_path / "responses.jsonl", rate=50) as load:
            # not before: the deliveries with which it begins take longer on a busy machine
            monkeypatch.setattr(generator, "PATIENCE_SECONDS", 0.5)
            load.switch("blocked")
            wait_until(lambda: refused, "a command is refused", 10)
            missing = load.finish()
    assert {request.key for request in missing} == set(refused)


def test_a_shop_that_accepts_no_deliveries_ends_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator, "PATIENCE_SECONDS", 0.5)
    with site(503, []) as blocked:
        load = Load({"home": blocked}, "home", Shopping(1, "x"), tmp_path / "responses.jsonl")
        with pytest.raises(TimeoutError, match="does not accept deliveries"), load:
            pass
