"""Lag and readiness stay true while the projection, PostgreSQL or the broker is dead or frozen."""

from __future__ import annotations

import random
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from infra.log.topics import create_topics
from infra.stack.embedded.kafka import lone_broker
from services.kernel.record.envelope import now_micros, parse_time
from services.projection.engine.lag import STALLED_SECONDS
from services.projection.read_models import READ_MODELS
from tests.integration.projection.conftest import Shop
from tests.integration.projection.processes import QueryApi, applied, running, until
from tests.integration.projection.shop_log import LogWriter, fresh_topics, history, order_life, stock_life
from tests.ports import free_ports
from tests.postgres_server import EmbeddedPostgres
from tests.servers import NodeServer

pytestmark = pytest.mark.long

SERIES = 2 * len(READ_MODELS)  # two partitions each
MODELS = [model.name for model in READ_MODELS if model.stream == "order"]


@pytest.fixture
async def api(shop: Shop) -> AsyncIterator[QueryApi]:
    with running("query", shop.kafka, shop.database_url, shop.folder / "query.log") as query:
        await query.ready()
        async with QueryApi(query) as client:
            yield client


async def series(api: QueryApi, name: str) -> dict[str, float]:
    """A metric's values by their labels, as written."""
    lines = (await api.get(f"{api.health}/metrics")).text.splitlines()
    matches = [re.fullmatch(rf"{name}(\{{.*\}})? (\S+)", line) for line in lines]
    return {line[1] or "": float(line[2]) for line in matches if line}


async def lag_of(api: QueryApi, name: str, read_model: str) -> float:
    return sum(
        value for labels, value in (await series(api, name)).items() if f'read_model="{read_model}"' in labels
    )


async def header(api: QueryApi) -> float | None:
    value = (await api.get("/docs")).headers.get("daybook-lag-seconds")
    return None if value is None else float(value)


async def lag_is_known(api: QueryApi) -> bool:
    return await series(api, "daybook_lag_known") == {"": 1.0} and await header(api) is not None


async def at_rest(api: QueryApi) -> bool:
    lags = await series(api, "daybook_lag_events")
    return len(lags) == SERIES and set(lags.values()) == {0.0} and await header(api) == 0.0


async def lag_is_unknown(api: QueryApi) -> bool:
    """Whether the lag is unknown everywhere: no metric and no header."""
    if await series(api, "daybook_lag_known") != {"": 0.0} or await header(api) is not None:
        return False
    assert not await series(api, "daybook_lag_events")
    assert not await series(api, "daybook_lag_seconds")
    return True


async def reason(api: QueryApi) -> str:
    """The reason why the API is not ready; empty if it is."""
    body: dict[str, str] = (await api.get(f"{api.health}/health/ready")).json()
    return body.get("reason", "")


def reason_contains(api: QueryApi, what: str) -> Callable[[], Awaitable[bool]]:
    async def contains() -> bool:
        try:
            return what in await reason(api)
        except httpx.TransportError:  # the API is starting
            return False

    return contains


async def test_an_idle_shop_is_not_behind_whatever_closes_its_log(shop: Shop, api: QueryApi) -> None:
    await until(lambda: at_rest(api), "an empty log: there is nothing to be behind")
    events = history(2, 50)
    shop.writer.write_all(events, 10, spoil=0.2)
    shop.writer.write(events[:10], abort=True)
    await until(lambda: applied(shop.connection, events), "not all events were applied")
    await until(lambda: at_rest(api), "markers and aborted records were counted as events")
    assert set((await series(api, "daybook_lag_seconds")).values()) == {0.0}
    projections = (await api.get("/projections")).json()["projections"]
    assert projections
    assert all(
        partition["lag_events"] == 0 for projection in projections for partition in projection["partitions"]
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
async def test_lag_grows_while_the_projection_does_nothing(
    shop: Shop, api: QueryApi, how: signal.Signals
) -> None:
    before = order_life("before", random.Random(1))
    shop.writer.write(before)
    await until(lambda: applied(shop.connection, before), "not applied")
    await until(lambda: at_rest(api), "the lag did not go back to zero")
    began = now_micros()
    shop.projection.signal(how)
    after = order_life("after", random.Random(3))
    shop.writer.write(after)

    async def seen() -> bool:
        return await lag_of(api, "daybook_lag_events", "orders") == len(after)

    await until(seen, "the lag keeps its last good value")
    for name in MODELS:
        assert await lag_of(api, "daybook_lag_events", name) == len(after)
    assert await lag_of(api, "daybook_lag_events", "stock") == 0
    await until(
        reason_contains(api, "nothing was applied to orders"), "it reports ready while the projection is dead"
    )
    text = await reason(api)
    since = re.search(r"since (\S+), and (\d+) events wait", text)
    assert since is not None, text
    assert began - 1_000_000 <= parse_time(since[1]) <= now_micros() - STALLED_SECONDS * 1_000_000
    assert int(since[2]) == len(after)
    assert (await header(api) or 0) > STALLED_SECONDS
    assert await lag_of(api, "daybook_lag_seconds", "orders") > STALLED_SECONDS
    if how is signal.SIGSTOP:
        shop.projection.signal(signal.SIGCONT)
    else:
        shop.projection.child.wait()
        shop.projection.start()

    async def caught_up() -> bool:
        # if it was frozen in a transaction, PostgreSQL has ended that, and the process ends too
        shop.projection.restart_if_ended()
        return await at_rest(api)

    await until(caught_up, "it is back, and the lag did not go back to zero")
    assert await reason(api) == ""


async def test_more_than_a_window_of_events_is_reported_as_a_bound(shop: Shop, api: QueryApi) -> None:
    shop.projection.kill()
    events = [event for number in range(80) for event in stock_life(f"sku-{number}", random.Random(number))]
    shop.writer.write(events)

    async def seen() -> bool:
        return await lag_of(api, "daybook_lag_events", "stock") >= len(events)

    await until(seen, "fewer events than there are")
    assert await lag_of(api, "daybook_lag_events", "stock") <= len(events) + 2  # a marker in each partition
    assert await lag_of(api, "daybook_lag_events", "orders") == 0


async def test_a_position_outside_the_log_is_no_lag(shop: Shop, api: QueryApi) -> None:
    events = history(1, 20)
    shop.writer.write_all(events, 10)
    await until(lambda: applied(shop.connection, events), "not all events were applied")
    await until(lambda: lag_is_known(api), "the lag is not known though every store responds")
    shop.projection.kill()
    fresh_topics(shop.kafka)
    await until(lambda: lag_is_unknown(api), "a lag was computed from a position that the log does not hold")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[NodeServer]:
    port, controller_port = free_ports(2)
    server = NodeServer(lone_broker(tmp_path / "broker", port, controller_port, heap_megabytes=256))
    server.start()
    create_topics(server.bootstrap)
    yield server
    server.kill()


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(tmp_path / "postgres", *free_ports(1))
    server.start()
    yield server
    server.kill()


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    for member in family:
        member.suspend()
    try:
        yield
    finally:
        for member in family:
            if member.is_running():
                member.resume()


async def test_without_one_of_its_stores_the_lag_is_not_known(
    broker: NodeServer, postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    stores: tuple[EmbeddedPostgres | NodeServer, ...] = (postgres, broker)
    with running("query", broker.bootstrap, postgres.url(), tmp_path / "query.log") as query:
        await query.ready()
        async with QueryApi(query) as client:
            await until(lambda: lag_is_known(client), "the lag is not known though every store responds")
            for store in stores:
                with frozen(store.child.pid):
                    await until(lambda: lag_is_unknown(client), f"{store} is frozen and the lag is known")
                    await responds_as_far_as_possible(client, store)
                await until(lambda: lag_is_known(client), f"{store} is back and was not used")
                store.stop()
                await until(lambda: lag_is_unknown(client), f"{store} is gone and the lag is known")
                await responds_as_far_as_possible(client, store)
                store.start()
                await until(lambda: lag_is_known(client), f"{store} is back and was not used")
            assert await reason(client) == ""


async def responds_as_far_as_possible(api: QueryApi, store: EmbeddedPostgres | NodeServer) -> None:
    """Without PostgreSQL no reads; without the broker reads continue, with unknown lag."""
    if isinstance(store, EmbeddedPostgres):
        assert not await series(api, "daybook_position")
        await until(reason_contains(api, "PostgreSQL"), "it reports ready without PostgreSQL")
    else:
        assert (await api.get("/orders")).status_code == 200
        assert await reason(api) == ""


async def test_readiness_does_not_come_back_because_the_broker_is_gone_too(
    broker: NodeServer, fresh_database: str, tmp_path: Path
) -> None:
    """No event is applied then either."""
    LogWriter(broker.bootstrap).write(order_life("waits", random.Random(1)))
    with running("query", broker.bootstrap, fresh_database, tmp_path / "query.log") as query:
        async with QueryApi(query) as client:
            await until(reason_contains(client, "nothing was applied"), "it reports ready")
            broker.stop()
            await until(lambda: lag_is_unknown(client), "the broker is gone and the lag is known")
            assert "nothing was applied" in await reason(client)
