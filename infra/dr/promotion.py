"""Making a site the active one: the same for a planned switchover and after a loss."""

from __future__ import annotations

import asyncio

import asyncpg
import httpx

from contracts.kernel.records import HoldKind, SiteRole
from infra.base.http import local_http
from infra.base.waiting import wait_until
from infra.dr.plan import split_place
from infra.dr.seeding import last_data
from infra.dr.steps import NotDone, Steps
from infra.log.asking import ask
from infra.log.control import lift_hold, write_hold, write_role
from infra.log.topics import SERVICES, catalogue, mirrored_topics
from infra.stack.mirror_settings import mirror_transactional_id
from infra.stack.platform import platform_of
from infra.stack.shop import MIRROR
from infra.stack.site import Site
from services.kernel.log.transactions import Transactions

NOTHING = -1  # the offset before the first
STOP_SECONDS = 40.0
WORKER_SECONDS = 120.0
DATABASE_SECONDS = 5.0
FENCE_TIMEOUT_MS = 10_000
_INSERT = """
INSERT INTO promotion (epoch, topic, partition, ends_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"""


def stop_mirror(site: Site, source: Site, steps: Steps) -> dict[tuple[str, int], int]:
    """Hold the mirror at `site` for good, shut out what may be left of it, and see where its log ends.

    It is killed: nothing that it could finish is wanted (what it must have copied is proven, or its source is
    gone), a clean stop takes seconds without writes, and the fence ends what it has open.

    Answers the offset of the last record of each mirrored partition, -1 for an empty one. Raises NotDone
    where it does not stop.
    """
    with steps.step("mirror stopped for good"):
        platform = platform_of(site.settings)
        platform.stop(site, MIRROR)
        platform.kill(site, MIRROR)
        wait_until(
            lambda: not mirror_running(site),
            f"the mirror at {site.name} has stopped (see `./daybook --site {site.name} logs mirror`)",
            STOP_SECONDS,
            error=NotDone,
        )
    with steps.step("mirror fenced"):
        Transactions(site.bootstrap, [mirror_transactional_id(source.name)], FENCE_TIMEOUT_MS).fence()
    with steps.step("end of the mirrored log") as doing:
        ends = last_data(site.bootstrap, mirrored_topics())
        topics = [topic for topic in catalogue().values() if topic.mirrored]
        every = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
        doing.detail = f"{len(ends)} of {len(every)} partitions hold records"
    return {place: ends.get(place, NOTHING) for place in every}


def mirror_running(site: Site) -> bool:
    """Whether the site's mirror runs; at a site that is not kept up it is dead."""
    mirror = platform_of(site.settings).processes(site).get(MIRROR)
    return mirror is not None and mirror.running


def promote(site: Site, epoch: int, ends: dict[str, int], steps: Steps, hold: HoldKind) -> None:
    """Write the role, wait for the workers, take requests again. Doing it again goes on where it stopped.

    `hold` keeps requests out until the workers are active: `takeover` where logs may be cut, and `quiesced`
    where they are complete.
    """
    with steps.step("ends of the mirrored log kept") as doing:
        doing.detail = _keep_ends(site, epoch, ends)
    with steps.step(f"{site.name} active in epoch {epoch}"):
        role = ask(site.bootstrap).role
        if (role.role, role.epoch) != ("active", epoch):
            # the hold goes first: it means nothing before the role's epoch, and there is no moment without it
            write_hold(site.bootstrap, hold, epoch)
            write_role(site.bootstrap, SiteRole(site.name, "active", epoch))
    with steps.step("workers active"):
        wait_until(
            lambda: all(_active(site, service, epoch) for service in SERVICES),
            f"the workers of {site.name} are active",
            WORKER_SECONDS,
            error=lambda late: NotDone(
                f"{late}: see `./daybook --site {site.name} status`; then run this command again"
            ),
        )
    with steps.step("writes resumed"):
        lift_hold(site.bootstrap)


def _active(site: Site, service: str, epoch: int) -> bool:
    """Whether the service's worker writes in this epoch; it says so only after its takeover."""
    try:
        url = f"{site.settings.url(f'{service}-worker')}/health/ready"
        answer = local_http().get(url, timeout=1)
    except httpx.HTTPError:
        return False
    said = answer.json()
    return answer.status_code == 200 and (said.get("status"), said.get("epoch")) == ("active", epoch)


def _keep_ends(site: Site, epoch: int, ends: dict[str, int]) -> str:
    """For readers with tokens of lost writes. Orders matter more: a database that is away stops nothing."""
    rows = [(epoch, *split_place(place), offset + 1) for place, offset in ends.items()]

    async def insert() -> None:
        connection = await asyncpg.connect(site.database_url, timeout=DATABASE_SECONDS)
        try:
            await connection.executemany(_INSERT, rows, timeout=DATABASE_SECONDS)
        finally:
            await connection.close()

    try:
        asyncio.run(insert())
    except (asyncpg.PostgresError, OSError, TimeoutError) as error:
        return f"not in the database ({error}): readers with tokens of lost writes will wait in vain"
    return f"{len(rows)} partitions"
