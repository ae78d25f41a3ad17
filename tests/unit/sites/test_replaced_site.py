"""A replaced site acknowledges nothing: whatever froze, however late its guard is, and cut off if there is a lease."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contracts.kernel.records import SiteRole
from infra.dr import promotion
from infra.log.control import Address, SiteSilent
from services.kernel.log import proof
from services.kernel.log.control import Control
from tests.unit.sites.replaced import Model, course

SEEDS = range(1000)
LEASE_SECONDS = 6


def late(seed: int, lease_seconds: int = 0, change: Callable[[Model], None] = lambda _: None) -> list[float]:
    """The old site's acknowledgements after the promotion."""
    model = course(seed, lease_seconds, change)
    return [at for at in model.acknowledged if at > model.promoted]


@pytest.mark.parametrize("lease_seconds", [0, LEASE_SECONDS])
def test_a_replaced_site_acknowledges_nothing(lease_seconds: int) -> None:
    models = [course(seed, lease_seconds) for seed in SEEDS]
    assert [
        seed for seed in SEEDS if any(at > models[seed].promoted for at in models[seed].acknowledged)
    ] == []
    promoted = [model for model in models if model.promoted < float("inf")]
    assert len(promoted) > len(SEEDS) / 3
    assert sum(bool(model.acknowledged) for model in models) > len(SEEDS) * 0.8


def test_a_site_that_was_not_replaced_continues() -> None:
    """Whoever was frozen proves itself, and acknowledges again at once."""
    for seed in SEEDS[:100]:
        model = course(seed)
        thawed = max(process.until for process in model.home.values() if process.until < float("inf"))
        if model.promoted == float("inf"):
            assert min(at for at in model.acknowledged if at > thawed) < thawed + 3, seed


def test_without_a_lease_a_site_that_is_cut_off_acknowledges_on() -> None:
    """What the lease is for; the page about two sites says so."""

    def cut_off(model: Model) -> None:
        model.cut = (4.0, 60.0)

    assert any(late(seed, 0, cut_off) for seed in SEEDS[:50])


def without_gaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(proof, "GAP_SECONDS", 1e9)


def without_announcement(patch: pytest.MonkeyPatch) -> None:
    def epoch(control: Control) -> int:
        return control.role.epoch

    patch.setattr(proof, "claimed_epoch", epoch)


def without_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(promotion, "fence_site", lambda *_: "")


def without_the_end_of_the_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(promotion, "MARGIN_SECONDS", 1.0 - LEASE_SECONDS)


@pytest.mark.parametrize(
    ("plant", "lease_seconds"),
    [
        (without_gaps, 0),
        (without_announcement, LEASE_SECONDS),
        (without_fence, 0),
        (without_fence, LEASE_SECONDS),
        (without_the_end_of_the_lease, LEASE_SECONDS),
    ],
)
def test_the_model_notices_when_a_protection_is_removed(
    plant: Callable[[pytest.MonkeyPatch], None], lease_seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(late(seed, lease_seconds) for seed in SEEDS)


def test_the_model_notices_when_only_the_request_is_checked() -> None:
    def change(model: Model) -> None:
        model.final_check = False

    assert any(late(seed, 0, change) for seed in SEEDS)


def test_a_promotion_waits_for_a_new_site_whose_broker_has_just_died(monkeypatch: pytest.MonkeyPatch) -> None:
    replies = [None, None, Control(SiteRole("away", "passive", 1))]

    def read(_: str) -> Control:
        if (control := replies.pop(0)) is None:
            raise SiteSilent("away does not respond")
        return control

    monkeypatch.setattr(promotion, "read_site", read)
    monkeypatch.setattr(promotion, "control_at", lambda _: Control(SiteRole("home", "passive", 1)))
    assert promotion.fence_site("away", Address("home", "home"), 2) == "home is passive"
    assert replies == []
