"""What `site.control` means for writers: role, hold and storage block together."""

from collections.abc import Sequence

import pytest

from contracts.kernel.records import SiteHold, SiteRole, StorageBlock
from services.edge.unavailable import SiteUnavailable
from services.kernel.log.control import HOLD, ROLE, STORAGE, TOPIC, Control
from services.kernel.record.codec import encode

FULL = StorageBlock("/data", 1_000, 1)
ACTIVE, PASSIVE = SiteRole("home", "active", 2), SiteRole("home", "passive", 2)
Step = tuple[str, SiteRole | SiteHold | StorageBlock | None]


def after(steps: Sequence[Step]) -> Control:
    control = Control()
    for key, record in steps:
        control.take(key.encode(), None if record is None else encode(TOPIC, record))
    return control


@pytest.mark.parametrize(
    ("steps", "code", "status"),
    [
        ([(STORAGE, FULL)], "storage_full", 507),
        ([(STORAGE, FULL), (ROLE, ACTIVE)], "storage_full", 507),
        ([(STORAGE, FULL), (ROLE, PASSIVE)], "site_passive", 503),
        ([(ROLE, ACTIVE), (STORAGE, FULL), (HOLD, SiteHold("quiesced", 2, 1))], "site_quiesced", 503),
        ([(ROLE, ACTIVE), (HOLD, SiteHold("quiesced", 2, 1)), (STORAGE, FULL)], "site_quiesced", 503),
        ([(STORAGE, FULL), (HOLD, SiteHold("quiesced", 1, 1)), (HOLD, None)], "storage_full", 507),
        ([(HOLD, SiteHold("quiesced", 1, 1)), (ROLE, ACTIVE), (STORAGE, FULL)], "storage_full", 507),
    ],
)
def test_a_write_block_for_storage_stands_beside_role_and_hold(
    steps: Sequence[Step], code: str, status: int
) -> None:
    control = after(steps)
    assert not control.taking
    refused = SiteUnavailable(control)
    assert (refused.code, refused.status) == (code, status)


def test_a_lifted_storage_block_leaves_the_hold_in_force() -> None:
    lifted = after([(STORAGE, FULL), (HOLD, SiteHold("takeover", 1, 1)), (STORAGE, None)])
    assert lifted.held == "takeover"
    assert after([(STORAGE, FULL), (STORAGE, None)]).taking


def test_workers_go_on_with_what_is_in_the_log() -> None:
    assert after([(STORAGE, FULL)]).writing
    assert not after([(STORAGE, FULL), (HOLD, SiteHold("unproven", 1, 1))]).writing
