"""What a wait for containers says when it has been in vain."""

from pathlib import Path

import pytest

from infra.base.settings import StackSettings
from infra.stack.compose import engine


def test_a_container_that_is_not_fine_is_named_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    exists = [
        engine.Container(f"shop-{service}-1", service, state, health, 0, ())
        for service, state, health in (
            ("order-api", "running", "unhealthy"),
            ("order-worker", "running", "starting"),
            ("topics", "created", ""),
            ("broker", "running", "healthy"),
        )
    ]
    checks = {
        "shop-order-api-1": {"Health": {"Log": [{"Output": "older"}, {"Output": "the log is gone\n"}]}},
        "shop-order-worker-1": {"Health": {"Log": []}},
        "shop-topics-1": {},
    }
    monkeypatch.setattr(engine, "containers", lambda _: exists)
    monkeypatch.setattr(engine, "_inspect", lambda name: {"State": checks[name]})
    monkeypatch.setattr(engine, "START_SECONDS", 0.0)
    with pytest.raises(engine.EngineFailed) as failed:
        engine.await_fine(StackSettings(home=tmp_path, stack="compose"), {own.service for own in exists})
    named = "order-api is unhealthy (the log is gone), order-worker is starting, topics is created: "
    assert str(failed.value).startswith(named)
