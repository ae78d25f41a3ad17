"""The Job that changes a slot layout on Kubernetes: idempotent, and refused where a slot would have no partition."""

from __future__ import annotations

import pytest

from infra.base.errors import NotReady
from infra.k8s.layout import apply_layout, main
from infra.log.control import close_layout, lift_hold, read_site, write_hold
from infra.stack.start import prepare_log


@pytest.fixture(scope="module")
def bootstrap(kafka: str) -> str:
    prepare_log(kafka, "home")
    return kafka


def test_it_changes_the_layout_once(bootstrap: str) -> None:
    before = read_site(bootstrap).layout("order")
    assert "order has 2 slots from now on" in apply_layout(bootstrap, "order", 2)
    after = read_site(bootstrap).layout("order")
    assert (after.slots, after.number) == (2, before.number + 1)
    assert "already" in apply_layout(bootstrap, "order", 2)
    assert read_site(bootstrap).layout("order") == after


def test_it_continues_what_was_interrupted(bootstrap: str) -> None:
    close_layout(bootstrap, "inventory")
    assert "from now on" in apply_layout(bootstrap, "inventory", 1)
    assert read_site(bootstrap).layout("inventory").number > 0


def test_it_is_refused(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NotReady, match="order has 2 partitions"):
        apply_layout(bootstrap, "order", 3)
    write_hold(bootstrap, "quiesced", 1)
    with pytest.raises(NotReady, match="the site is quiesced"):
        apply_layout(bootstrap, "order", 1)
    lift_hold(bootstrap)
    monkeypatch.setenv("DAYBOOK_KAFKA", bootstrap)
    assert main(["order", "3"]) == 1
    assert "run it again" in capsys.readouterr().err
    assert main(["orders", "3"]) == main(["order"]) == main(["order", "0"]) == 2
