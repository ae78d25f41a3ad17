"""A shop that is closed is told from one that is slow."""

import time

import aiohttp
import pytest
from aiohttp import web

from infra.base.ports import HOST, free_ports
from infra.lab.retail import sender
from infra.lab.retail.requests import Api, Call, call
from infra.lab.retail.sender import NoResponse, NothingThere, Sender
from tests.unit.retail.sheet import ALWAYS, book

URL = f"http://{HOST}"


def any_call() -> Call:
    step = next(iter(book("540000,A1,MUG,10,2010-12-01 09:00:00,1.0,7.0,France").load(ALWAYS).steps()))
    return call(step)


async def test_where_nothing_listens_it_gives_up_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "FIRST_PATIENCE_SECONDS", 0.2)
    urls = dict.fromkeys(Api, f"{URL}:{free_ports(1)[0]}")
    began = time.perf_counter()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(NothingThere, match="Cannot connect"):
            await Sender(session, urls).send(any_call())
    assert time.perf_counter() - began < 5


async def test_what_has_answered_once_is_given_all_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "FIRST_PATIENCE_SECONDS", 0.0)
    shop = web.Application()
    runner = web.AppRunner(shop)
    await runner.setup()
    port = free_ports(1)[0]
    await web.TCPSite(runner, HOST, port).start()
    async with aiohttp.ClientSession() as session:
        sending = Sender(session, dict.fromkeys(Api, f"{URL}:{port}"), patience=0.5)
        assert (await sending.send(any_call())).refused == "404"
        await runner.cleanup()
        with pytest.raises(NoResponse) as gone:
            await sending.send(any_call())
    assert not isinstance(gone.value, NothingThere)
