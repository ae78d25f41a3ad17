"""A site starts mute unless it can prove that it is the active one, or is told to be."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from infra.base.errors import NotReady
from infra.base.waiting import TooLate, wait_until
from infra.log.asking import Address, ControlReader, SiteSilent, ask
from infra.log.control import lift_hold, stand_down, write_hold
from infra.stack.mirror_settings import mirror_transactional_id
from services.kernel.log.transactions import OwnershipLost, Transactions

PEER_SECONDS = 60.0  # both sites may be starting
PAUSE_SECONDS = 0.2
OWN_SECONDS = 20.0
FENCE_TIMEOUT_MS, FENCE_SECONDS = 2_000, 5.0  # the supervisor waits meanwhile


class SiteStanding(StrEnum):
    """How a site starts."""

    PASSIVE = "passive"
    PROVEN = "active: the other site has no higher epoch"
    TOLD = "active: told to be, the other site was not asked"
    STOOD_DOWN = "passive: the other site has a higher epoch"
    UNPROVEN = "mute: the other site could not be asked"


def prove_role(
    site: Address,
    other: Address,
    *,
    told: bool = False,
    patience: float = PEER_SECONDS,
    stopping: Callable[[], bool] = lambda: False,
) -> SiteStanding:
    """Decide how `site`, whose own broker is up, starts, and write that to its `site.control`.

    `other` is the other site's address for this one.

    Raises TimeoutError where the own broker does not answer.
    """
    own = ask(site.bootstrap, OWN_SECONDS)
    if own.role.role == "passive":
        return SiteStanding.PASSIVE
    if told:
        lift_hold(site.bootstrap)
        return SiteStanding.TOLD
    epoch = _epoch_of(other, patience, stopping)
    if epoch is None:
        write_hold(site.bootstrap, "unproven", own.role.epoch)
        return SiteStanding.UNPROVEN
    if epoch > own.role.epoch:
        stand_down(site.bootstrap, site.name, epoch)
        return SiteStanding.STOOD_DOWN
    if own.held == "unproven":
        lift_hold(site.bootstrap)
    return SiteStanding.PROVEN


def require_passive(site: Address) -> None:
    """Raise NotReady unless the site's own `site.control` says that it is passive."""
    try:
        role = ask(site.bootstrap).role
    except SiteSilent as silent:
        raise NotReady(f"the mirror waits for the site's own broker: {silent}") from silent
    if role.role != "passive":
        raise NotReady(f"no mirror into {site.name}, which is active in epoch {role.epoch}")


def end_last_mirror(site: Address, source: str) -> None:
    """End what a mirror from `source` that was killed has left open in the site's log.

    Until its transaction timed out, a minute later, its successor would wait for it, as every reader does.
    Raises NotReady where the broker does not do it.
    """
    try:
        Transactions(site.bootstrap, [mirror_transactional_id(source)], FENCE_TIMEOUT_MS).fence(FENCE_SECONDS)
    except OwnershipLost as error:
        raise NotReady(f"the last mirror's transaction could not be ended: {error}") from error


def _epoch_of(other: Address, patience: float, stopping: Callable[[], bool]) -> int | None:
    """The other site's epoch; None where it stays silent."""
    reader = ControlReader(other.bootstrap)
    try:
        return wait_until(
            lambda: None if stopping() else reader.read().role.epoch,
            f"{other.name} says its epoch",
            patience,
            enough=lambda _: True,
            later=(SiteSilent,),
            every=PAUSE_SECONDS,
        )
    except TooLate:
        return None
    finally:
        reader.close()
