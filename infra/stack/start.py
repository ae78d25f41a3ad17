"""How a site starts: its topics and first records, and its role, before any of its services.

A site of two starts with a write block unless it proves that it is the active one, or an operator forces it.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum

from confluent_kafka import KafkaException

from infra.base.errors import NotReady
from infra.base.waiting import TooLate, wait_until
from infra.log.control import Address, SiteSilent, lift_hold, read_site, stand_down, write_alone, write_hold
from infra.log.event_log import about_events
from infra.log.topics import Topic, create_topics, ensure_site, make_safe
from infra.stack.mirror_settings import mirror_transactional_id
from services.kernel.log.transactions import OwnershipLost, Transactions

PEER_SECONDS = 60.0  # both sites may be starting
PAUSE_SECONDS = 0.2
OWN_SECONDS = 20.0
TOPICS_SECONDS = 60.0
FENCE_TIMEOUT_MS, FENCE_SECONDS = 2_000, 5.0  # the supervisor waits meanwhile


class SiteStanding(StrEnum):
    """The role with which a site starts, and why."""

    PASSIVE = "passive"
    PROVEN = "active: the other site has no higher epoch"
    FORCED = "active: forced, the other site was not contacted"
    DEMOTED = "passive: the other site has a higher epoch"
    UNPROVEN = "active with a write block: the other site does not respond"


def prepare_log(
    bootstrap: str,
    site: str,
    topics: Mapping[str, Topic] | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> tuple[list[str], list[str]]:
    """Create missing topics and the site's first records, and correct settings that could lose records.

    `topics` is the catalogue by default. Returns the new topics, and each corrected setting in words. Raises
    TooLate or Unsafe.
    """

    def prepared() -> tuple[list[str], list[str]]:
        if stopping():
            return [], []
        created, corrected = create_topics(bootstrap, topics), make_safe(bootstrap, topics)
        ensure_site(bootstrap, site)
        return created, corrected

    # A young broker names itself leader of a partition before it is; every step may be repeated.
    return wait_until(
        prepared,
        "the broker has the topics and the site's role",
        TOPICS_SECONDS,
        enough=lambda _: True,
        later=(KafkaException, TimeoutError),
        every=PAUSE_SECONDS,
    )


def prove_role(
    site: Address, other: Address, *, forced: bool = False, stopping: Callable[[], bool] = lambda: False
) -> SiteStanding:
    """Decide how `site`, whose own broker is up, starts, and write that to its `site.control`.

    `other` is the other site's address for this one. Raises TimeoutError where the own broker does not respond,
    and NotReady for a site that would be active and has lost its log.
    """
    own = read_site(site.bootstrap, OWN_SECONDS)
    if own.role.role == "passive":
        return SiteStanding.PASSIVE
    if forced:
        write_alone(site.bootstrap, own.role.epoch)
        lift_hold(site.bootstrap)
        return SiteStanding.FORCED
    epoch = _epoch_of(other, stopping)
    if epoch is None:
        write_hold(site.bootstrap, "unproven", own.role.epoch)
        return SiteStanding.UNPROVEN
    if lost_log(site, other):
        raise NotReady(
            f"{site.name} has no log, and {other.name} has one. If {other.name} was not promoted: `./daybook failover "
            f"--unplanned`. Then `./daybook site rebuild {site.name}`"
        )
    if epoch > own.role.epoch:
        stand_down(site.bootstrap, site.name, epoch)
        return SiteStanding.DEMOTED
    if own.held == "unproven":
        lift_hold(site.bootstrap)
    return SiteStanding.PROVEN


def lost_log(site: Address, other: Address) -> bool:
    """Whether a site has no event, and the other one has some: it must not be the source of the mirror."""
    return not about_events(site.bootstrap) and about_events(other.bootstrap) > 0


def require_passive(site: Address) -> None:
    """Raise NotReady unless the site's own `site.control` contains the passive role."""
    try:
        role = read_site(site.bootstrap).role
    except SiteSilent as silent:
        raise NotReady(f"the mirror waits for the site's own broker: {silent}") from silent
    if role.role != "passive":
        raise NotReady(f"no mirror into {site.name}, which is active in epoch {role.epoch}")


def end_last_mirror(site: Address, source: str) -> None:
    """End the transaction that a killed mirror from `source` left open in the site's log.

    Otherwise its successor, and every reader, waits a minute for the transaction's timeout. Raises NotReady
    where the broker does not do it.
    """
    try:
        Transactions(site.bootstrap, [mirror_transactional_id(source)], FENCE_TIMEOUT_MS).fence(FENCE_SECONDS)
    except OwnershipLost as error:
        raise NotReady(f"the last mirror's transaction could not be ended: {error}") from error


def _epoch_of(other: Address, stopping: Callable[[], bool]) -> int | None:
    """The other site's epoch; None where it does not respond."""
    try:
        return wait_until(
            lambda: None if stopping() else read_site(other.bootstrap).role.epoch,
            f"{other.name} returns its epoch",
            PEER_SECONDS,
            enough=lambda _: True,
            later=(SiteSilent,),
            every=PAUSE_SECONDS,
        )
    except TooLate:
        return None
