"""Promotion: stops the mirror, makes a site the active one, and reverses the mirror.

It is the same in a planned switchover and after a loss. Between announcing its epoch and giving the role, it sees to it
that only one site writes (ADR 24).
"""

import time

from confluent_kafka import KafkaException

from contracts.kernel.records import HoldKind, SiteRole, SiteSwitch
from infra.base.errors import NotDone
from infra.base.waiting import wait_until
from infra.dr.mirror import last_data, reset_internal, seed
from infra.dr.overview import worker_health, workers
from infra.dr.plan import Steps, control_at, ends_of
from infra.log.control import (
    FENCE_TIMEOUT_MS,
    Address,
    SiteSilent,
    lift_hold,
    read_site,
    stand_down,
    write_alone,
    write_hold,
    write_role,
)
from infra.log.database import in_database
from infra.log.topics import SERVICES, catalogue, mirrored_topics
from infra.stack.mirror_settings import mirror_transactional_id
from infra.stack.platform import platform_of
from infra.stack.shop import MIRROR, OWNER, database_url
from infra.stack.site import Site
from services.kernel.log.control import Control
from services.kernel.log.reader import Partition
from services.kernel.log.transactions import OwnershipLost, Transactions
from services.projection.engine.read_model import DATABASE_ERRORS

NOTHING = -1  # the offset before the first
STOP_SECONDS = 40.0
WORKER_SECONDS, SITE_SECONDS = 120.0, 60.0
DATABASE_SECONDS = 5.0
_INSERT = """
INSERT INTO promotion (epoch, topic, partition, ends_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"""


def stop_mirror(site: Site, source: Site, steps: Steps) -> dict[Partition, int]:
    """Keep the mirror at `site` down, fence it, and find the end of the mirrored log.

    It is killed: a clean stop takes seconds without writes and gains nothing, because its copy is proven complete
    or its source is gone. The fence ends its open transaction.

    Returns the offset of the last record of each mirrored partition, -1 for an empty one. Raises NotDone where it does
    not stop.
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
    return {partition: ends.get(partition, NOTHING) for partition in every}


def mirror_running(site: Site) -> bool:
    """Whether the site's mirror runs; it does not at a site that is down."""
    mirror = platform_of(site.settings).processes(site).get(MIRROR)
    return mirror is not None and mirror.running


def promote(site: Site, source: Site, switch: SiteSwitch, steps: Steps, write_block: HoldKind) -> None:
    """Write the role, wait for the workers, accept requests again. A second call continues where the first stopped.

    `write_block` refuses requests until the workers are active: `takeover` where logs may be incomplete,
    `quiesced` where they are complete.
    """
    epoch = switch.epoch
    with steps.step("ends of the mirrored log kept") as doing:
        doing.detail = _keep_ends(site, switch)
    with steps.step(f"{site.name} active in epoch {epoch}") as doing:
        role = _own_control(site.bootstrap).role
        if (role.role, role.epoch) != ("active", epoch):
            # The write block goes first: it is void here before the role's epoch, and announces that to the other site.
            write_hold(site.bootstrap, write_block, epoch)
            doing.detail = fence_site(site.bootstrap, Address(source.name, source.link), epoch)
            write_role(site.bootstrap, SiteRole(site.name, "active", epoch))
    with steps.step("workers active"):
        control = _own_control(site.bootstrap)
        names = [name for service in SERVICES for name in workers(control, service)]
        wait_until(
            lambda: all(_active(site, name, epoch) for name in names),
            f"the workers of {site.name} are active",
            WORKER_SECONDS,
            error=lambda late: NotDone(
                f"{late}: see `./daybook --site {site.name} status`; then run this command again"
            ),
        )
    with steps.step("writes resumed"):
        lift_hold(site.bootstrap)


def _own_control(bootstrap: str) -> Control:
    """Of the new site, which may have lost the broker that leads `site.control`: each try finds its leader anew.

    Raises NotDone.
    """
    return wait_until(
        lambda: read_site(bootstrap),
        "the new site responds",
        SITE_SECONDS,
        later=(SiteSilent,),
        error=NotDone,
    )


def _active(site: Site, worker: str, epoch: int) -> bool:
    """Whether the worker writes in this epoch; it reports so only after its takeover."""
    ready, body = worker_health(site, worker)
    return ready and (body.get("status"), body.get("epoch")) == ("active", epoch)


def _keep_ends(site: Site, switch: SiteSwitch) -> str:
    """For readers with tokens of lost writes. A database that is away does not stop the promotion."""
    rows = [(switch.epoch, end.topic, end.partition, end.offset + 1) for end in switch.ends]
    url = database_url(site.settings, OWNER)
    try:
        in_database(url, lambda connection: connection.executemany(_INSERT, rows), DATABASE_SECONDS)
    except DATABASE_ERRORS as error:
        return f"not in the database ({error}): readers with tokens of lost writes will wait in vain"
    return f"{len(rows)} partitions"


def start_reverse(source: Site, target: Site, switch: SiteSwitch, steps: Steps) -> None:
    """Mirror `source` into `target`, starting after the ends of the mirrored log that the switch recorded.

    Up to there both logs must be equal. A mirror that already runs has its positions and stays unchanged.
    """
    with steps.step(f"mirror {source.name} → {target.name}") as doing:
        if mirror_running(target):
            doing.detail = "runs already"
            return
        platform = platform_of(target.settings)
        if MIRROR not in target.journal.held():
            raise NotDone(f"the mirror at {target.name} is not held: `./daybook --site {target.name} status`")
        forgotten = reset_internal(target.bootstrap, source.name)
        positions = {partition: offset for partition, offset in ends_of(switch).items() if offset >= 0}
        seed(target.bootstrap, source.name, positions)
        platform.start(target, MIRROR)
        doing.detail = f"{len(positions)} positions, {len(forgotten)} old topics removed"


MARGIN_SECONDS = 1.0  # clocks of two machines do not run equally fast


def fence_site(target: str, source: Address, epoch: int) -> str:
    """Return once the site `source` cannot act for itself any more in an epoch before `epoch`; how, in words.

    Call it after the write block of `epoch` is written at the broker `target`, and before the role. Whoever compares
    the sites from then on sees that block. Who compared them before either did not run meanwhile, which is a gap, or
    has a lease, whose end this awaits. What the operator decided about a silent site is recorded: the new active site
    needs no proof from it. Raises NotDone or TimeoutError for `target`.
    """
    began, seconds = time.monotonic(), _own_control(target).lease_seconds
    theirs = control_at(source.bootstrap)
    if theirs is not None and theirs.role.role == "passive":
        return f"{source.name} is passive"
    if theirs is None or demoted(source, epoch):
        write_alone(target, epoch)
    if seconds:
        time.sleep(max(0.0, began + seconds + MARGIN_SECONDS - time.monotonic()))
        return f"a lease of {seconds} s has ended"
    return f"{source.name} does not respond" if theirs is None else f"{source.name} came back"


def demoted(source: Address, epoch: int) -> str:
    """Demote a site that responded just now. Returns why that was not possible; empty where it is done."""
    try:
        stand_down(source.bootstrap, source.name, epoch)
        return ""
    except (TimeoutError, OwnershipLost, KafkaException) as error:
        return str(error) or "no response"
