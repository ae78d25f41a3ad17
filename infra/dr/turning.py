"""Turning the mirror round after a promotion: it goes on at the new site's first own record, in both logs."""

from __future__ import annotations

from infra.dr.plan import split_place
from infra.dr.promotion import mirror_running
from infra.dr.seeding import reset_internal, seed
from infra.dr.steps import NotDone, Steps
from infra.stack.platform import platform_of
from infra.stack.shop import MIRROR
from infra.stack.site import Site


def start_reverse(source: Site, target: Site, ends: dict[str, int], steps: Steps) -> None:
    """Mirror `source` into `target`, beginning behind the offsets `ends` (`topic/partition`, -1 for none).

    Both logs must be equal before them. A mirror that runs already is left alone: it has its positions.
    """
    with steps.step(f"mirror {source.name} → {target.name}") as doing:
        if mirror_running(target):
            doing.detail = "runs already"
            return
        platform = platform_of(target.settings)
        if MIRROR not in platform.held(target):
            raise NotDone(f"the mirror at {target.name} is not held: `./daybook --site {target.name} status`")
        forgotten = reset_internal(target.bootstrap, source.name)
        positions = {split_place(place): offset for place, offset in ends.items() if offset >= 0}
        seed(target.bootstrap, source.name, positions)
        platform.start(target, MIRROR)
        doing.detail = f"{len(positions)} positions, {len(forgotten)} old topics removed"
