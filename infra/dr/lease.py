"""What a promotion does between announcing its epoch and giving the role, so that only one site writes (ADR 24)."""

from __future__ import annotations

import time

from confluent_kafka import KafkaException

from infra.log.control import Address, SiteSilent, read_site, stand_down, write_alone
from services.kernel.log.control import Control
from services.kernel.log.transactions import OwnershipLost

MARGIN_SECONDS = 1.0  # clocks of two machines do not run equally fast


def fence_site(target: str, source: Address, epoch: int) -> str:
    """Return once the site `source` cannot act for itself any more in an epoch before `epoch`; how, in words.

    Call it after the write block of `epoch` is written at the broker `target`, and before the role. Whoever compares
    the sites from then on sees that block. Who compared them before either did not run meanwhile, which is a gap, or
    has a lease, whose end this awaits. What the operator decided about a silent site is recorded: the new active site
    needs no proof from it. Raises SiteSilent or TimeoutError for `target`.
    """
    began, seconds = time.monotonic(), read_site(target).lease_seconds
    theirs = _control(source)
    if theirs is not None and theirs.role.role == "passive":
        return f"{source.name} is passive"
    if theirs is None or not _demoted(source, epoch):
        write_alone(target, epoch)
    if seconds:
        time.sleep(max(0.0, began + seconds + MARGIN_SECONDS - time.monotonic()))
        return f"a lease of {seconds} s has ended"
    return f"{source.name} does not respond" if theirs is None else f"{source.name} came back"


def _control(source: Address) -> Control | None:
    try:
        return read_site(source.bootstrap)
    except SiteSilent:
        return None


def _demoted(source: Address, epoch: int) -> bool:
    """Demote a site that came back meanwhile. False where it is silent again."""
    try:
        stand_down(source.bootstrap, source.name, epoch)
        return True
    except (TimeoutError, OwnershipLost, KafkaException):
        return False
