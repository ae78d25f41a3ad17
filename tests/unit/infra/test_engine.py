"""What the engine has of the shop's containers, and what a wait for them says when it has been in vain."""

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from infra.base.settings import ROOT, StackSettings
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


ROW: dict[str, Any] = {
    "Name": "/shop-broker-1",
    "Config": {"Labels": {"com.docker.compose.service": "broker"}},
    "State": {"Status": "running", "Health": {"Status": "healthy"}, "ExitCode": 0, "StartedAt": "today"},
    "NetworkSettings": {
        "Ports": {"19092/tcp": [{"HostIp": "127.0.0.1", "HostPort": "27492"}], "9/tcp": None}
    },
}


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_containers_are_those_of_the_project_that_are_still_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, removed: int
) -> None:
    commands = []

    def call(command: list[str], *_: object, **__: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if "ps" in command:
            return subprocess.CompletedProcess(command, 0, "a\nb\n", "")
        error = "Error response from daemon: No such container: b\n" if removed else ""
        rows = msgspec.json.encode([ROW] * (2 - removed)).decode()
        return subprocess.CompletedProcess(command, int(removed > 0), rows, error)

    monkeypatch.setattr(engine, "_call", call)
    monkeypatch.setenv("COMPOSE_PROJECT_NAME", "shop")
    address = ("127.0.0.1:27492",)
    container = engine.Container("shop-broker-1", "broker", "running", "healthy", 0, address, "today")
    assert engine.containers(StackSettings(home=tmp_path, stack="compose")) == [container] * (2 - removed)
    # a step that a user runs by hand is none of them
    label = "--filter=label=com.docker.compose"
    assert {f"{label}.project=shop", f"{label}.oneoff=False"} < {*commands[0]}


def test_containers_are_unknown_where_the_engine_does_not_respond(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failed = subprocess.CompletedProcess(["docker", "ps"], 1, "", "Cannot connect to the Docker daemon")
    monkeypatch.setattr(engine, "_call", lambda *_, **__: failed)
    with pytest.raises(engine.EngineFailed, match="Cannot connect"):
        engine.containers(StackSettings(home=tmp_path, stack="compose"))


def test_the_project_is_that_of_the_compose_file() -> None:
    assert yaml.safe_load((ROOT / "docker-compose.yml").read_text())["name"] == engine.PROJECT
