"""A start in containers that ends because of a step says which one, and why: its output is not above."""

from pathlib import Path

import msgspec
import pytest

from infra.base.settings import StackSettings
from infra.cli import in_containers
from infra.stack.compose.engine import LABEL, EngineFailed

REASON = "InvalidPasswordError: password authentication failed"
STEP = {
    "Name": "/daybook-migrations-1",
    "Config": {"Labels": {f"{LABEL}.service": "migrations"}},
    "NetworkSettings": {"Ports": {}},
}
ENGINE = """#!/bin/sh
case "$*" in
    "compose up "*) mv "$(dirname "$0")/after.json" "$(dirname "$0")/step.json"; exit 1 ;;
    "ps "*) echo 1 ;;
    "inspect "*) cat "$(dirname "$0")/step.json" ;;
    "logs --since today --tail 1 daybook-migrations-1") echo "REASON" >&2 ;;
    *) exit 3 ;;
esac
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StackSettings:
    engine = tmp_path / "docker"
    engine.write_text(ENGINE.replace("REASON", REASON))
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return StackSettings(home=tmp_path / "shop", port_base=20_000, stack="compose")


def step_ends_with(code: int, folder: Path, started: str = "today") -> None:
    """It failed yesterday, too."""
    for file, ended, at in (("step.json", 1, "yesterday"), ("after.json", code, started)):
        state = STEP | {"State": {"Status": "exited", "ExitCode": ended, "StartedAt": at}}
        (folder / file).write_bytes(msgspec.json.encode([state]))


def test_a_start_names_the_step_that_failed_and_what_it_printed_last(
    settings: StackSettings, tmp_path: Path
) -> None:
    step_ends_with(1, tmp_path)
    with pytest.raises(EngineFailed) as failed:
        in_containers.up(settings, 1, 1, insecure=False)
    assert str(failed.value).startswith(
        f"migrations ended with 1 ({REASON}): `./daybook --stack compose logs"
    )


@pytest.mark.parametrize(("code", "started"), [(0, "today"), (1, "yesterday")])
def test_a_start_that_fails_otherwise_refers_to_its_output(
    settings: StackSettings, tmp_path: Path, code: int, started: str
) -> None:
    step_ends_with(code, tmp_path, started)
    with pytest.raises(EngineFailed, match="ended with 1; its output is above"):
        in_containers.up(settings, 1, 1, insecure=False)
