"""The shop around a change of its topics: drained, down, its read models begun anew, up again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import asyncpg

from infra.base.settings import StackSettings
from infra.base.waiting import wait_until
from infra.dr.draining import drain
from infra.dr.repartition.generation import Moved, NotPossible, Show, repartition, require_more
from infra.dr.repartition.layout import closed
from infra.dr.steps import NotDone
from infra.log.control import lift_hold, write_hold
from infra.log.topics import Topic
from infra.stack.platform import platform_of
from infra.stack.shop import DATABASE, SERVICES, database_url
from infra.stack.site import Site, own_site
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
    site, platform = own_site(settings), platform_of(settings)
    if len(platform.sites()) > 1:
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
    platform.stop(site, *reversed(_own(site)))
    wait_until(
        lambda: _alive(site), "the processes stop", STOP_SECONDS, enough=lambda left: not left, error=NotDone
    )
    moved = repartition(site.bootstrap, service, partitions, wanted, show)
    show("beginning the read models anew")
    asyncio.run(_forget_read_models(site))
    lift_hold(site.bootstrap)
    platform.start(site, *_own(site))
    return moved


def _own(site: Site) -> list[str]:
    """The site's processes, stores apart."""
    return [name for name in platform_of(site.settings).processes(site) if name in PROCESSES]


def _alive(site: Site) -> list[str]:
    found = platform_of(site.settings).processes(site)
    return [name for name in _own(site) if found[name].running]


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
    url = database_url(site.settings, "postgres")
    connection = await asyncpg.connect(url, timeout=DATABASE_SECONDS)
    try:
        await connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")
        await connection.execute(f"CREATE DATABASE {DATABASE}")
    finally:
        await connection.close()
