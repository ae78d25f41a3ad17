"""The effect of `site.control` on writers: role, write block and storage block together."""

from collections.abc import Sequence

import pytest

from contracts.kernel.records import SiteAlone, SiteHold, SiteRole, StorageBlock
from services.edge.problems import SiteUnavailable
from services.kernel.log.control import ALONE, CONTROL, HOLD, ROLE, STORAGE, Control
from services.kernel.log.proof import claimed_epoch
from services.kernel.record.codec import encode

FULL = StorageBlock("/data", 1_000, 1)
ACTIVE, PASSIVE = SiteRole("home", "active", 2), SiteRole("home", "passive", 2)
Step = tuple[str, SiteRole | SiteHold | SiteAlone | StorageBlock | None]


def after(steps: Sequence[Step]) -> Control:
    control = Control()
    for key, record in steps:
        control.take(key.encode(), None if record is None else encode(CONTROL, record))
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


def test_a_site_is_alone_only_in_the_epoch_of_the_record() -> None:
    alone = (ALONE, SiteAlone(2, 1))
    assert after([(ROLE, ACTIVE), alone]).alone
    assert after([alone, (ROLE, ACTIVE)]).alone
    assert not after([alone]).alone
    assert not after([(ROLE, ACTIVE), alone, (ALONE, None)]).alone


def test_the_write_block_of_a_promotion_announces_its_epoch() -> None:
    assert claimed_epoch(after([(ROLE, PASSIVE)])) == 2
    assert claimed_epoch(after([(ROLE, PASSIVE), (HOLD, SiteHold("takeover", 3, 1))])) == 3
    assert claimed_epoch(after([(ROLE, PASSIVE), (HOLD, SiteHold("takeover", 3, 1)), (HOLD, None)])) == 2


def test_outcomes_count_in_their_epoch_alone() -> None:
    control = after([(ROLE, ACTIVE)])
    assert [epoch for epoch in range(4) if control.counts(epoch)] == [0, 2]
