"""The shop around a change of its topics: drained, down, its read models begun anew, up again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import asyncpg

from infra.base.settings import StackSettings
from infra.dr.draining import drain
from infra.dr.repartition.generation import Moved, NotPossible, Show, repartition, require_more
from infra.dr.repartition.layout import closed
from infra.dr.steps import wait_until
from infra.log.control import lift_hold, write_hold
from infra.log.topics import Topic
from infra.stack.embedded.postgres import DATABASE, PostgresPlace
from infra.stack.embedded.stack import SERVICES
from infra.stack.site import Site, own_site, peer
from services.kernel.log.control import read_control

PROCESSES = tuple(service.name for row in SERVICES for service in row)
DRAIN_SECONDS = 60.0
STOP_SECONDS = 60.0
DATABASE_SECONDS = 30.0


def repartition_shop(
    settings: StackSettings, service: str, partitions: int, wanted: Mapping[str, Topic], show: Show
) -> list[Moved]:
    """Stop taking orders, let conversations end, write the topics anew, and open again.

    The processes are up again, and restoring, at the return. Called again after a failure it goes on where
    it stopped; until then the processes stay down. Raises NotPossible, NotDone and what `repartition` raises.
    """
    site = own_site(settings)
    if peer(settings) is not None:
        raise NotPossible("the log is mirrored: offsets of both sites would no longer be those of one log")
    epoch = read_control(site.bootstrap).role.epoch
    if epoch > 1:
        raise NotPossible("a promotion's record names offsets of this log: it must stay as it is")
    asyncio.run(_require_no_decisions(site))
    if not closed(site.bootstrap, service):
        require_more(site.bootstrap, service, partitions)
        show("waiting for conversations to end")
        write_hold(site.bootstrap, "quiesced", epoch)
        try:
            drain(site.bootstrap, DRAIN_SECONDS)
        except BaseException:
            lift_hold(site.bootstrap)
            raise
    show("stopping the shop's processes")
    for name in reversed(_running(site)):
        site.journal.hold(name)
    wait_until(lambda: not _alive(site), STOP_SECONDS, lambda: f"{', '.join(_alive(site))} do not stop")
    moved = repartition(site.bootstrap, service, partitions, wanted, show)
    show("beginning the read models anew")
    asyncio.run(_forget_read_models(site))
    lift_hold(site.bootstrap)
    for name in _running(site):
        site.journal.release(name)
    return moved


def _running(site: Site) -> list[str]:
    """The site's own processes that a supervisor watches, stores apart."""
    state = site.journal.read()
    return [each.name for each in (state.members if state else ()) if each.name in PROCESSES]


def _alive(site: Site) -> list[str]:
    state = site.journal.read()
    names = set(_running(site))
    return [each.name for each in (state.members if state else ()) if each.name in names and each.pid]


async def _require_no_decisions(site: Site) -> None:
    """What people decided about single events stands in PostgreSQL alone, by offset."""
    connection = await asyncpg.connect(site.database_url, timeout=DATABASE_SECONDS)
    try:
        for table in ("parked", "skipped"):
            if await connection.fetchval(f"SELECT to_regclass('{table}') IS NOT NULL"):
                count = await connection.fetchval(f"SELECT count(*) FROM {table}")
                if count:
                    raise NotPossible(f"{count} events are {table}: decide first, see `./daybook parked`")
    finally:
        await connection.close()


async def _forget_read_models(site: Site) -> None:
    """Positions are offsets of the old topics; all else the projection makes again from the log."""
    place = PostgresPlace(site.settings.home / "postgres", site.settings.port("postgres"))
    connection = await asyncpg.connect(place.url("postgres"), timeout=DATABASE_SECONDS)
    try:
        await connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")
        await connection.execute(f"CREATE DATABASE {DATABASE}")
    finally:
        await connection.close()
