"""What looks for secrets finds each that is planted, wherever it is planted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.base.files import kept_secret
from infra.identity.authority import Authority
from infra.identity.issuer import TokenIssuer
from tests.leaks import leaks, secrets_of


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The secrets of a site, and its logs."""
    home = tmp_path_factory.mktemp("home")
    Authority(home / "kafka-identities").prepare(["order-api", "projection"])
    TokenIssuer(home / "identity").prepare(None)
    for name in ("hash-key", "postgres/password", "postgres/query-password"):
        kept_secret(home / name)
    (home / "logs").mkdir()
    (home / "logs" / "order-api.log").write_text("it began\n")
    return home


@pytest.fixture(params=range(11))
def planted(request: pytest.FixtureRequest, home: Path) -> tuple[str, str]:
    """Each secret in turn."""
    number: int = request.param
    return sorted(secrets_of(home).items())[number]


@pytest.fixture
def logged(home: Path) -> Iterator[Path]:
    log = home / "logs" / "projection.log"
    yield log
    log.unlink(missing_ok=True)


def test_every_kind_of_secret_is_known(home: Path) -> None:
    secrets = secrets_of(home)
    assert {name.partition(",")[0] for name in secrets} == {
        *("hash-key", "password", "query-password", "signing-key.json"),
        *("authority.key", "broker.pem", "broker.json", "order-api.json", "projection.json"),
    }
    assert len({*secrets.values()}) == 10, "a broker's key stands in two files"
    assert leaks(secrets, home, [("up", "fine")]) == []


def test_a_secret_in_a_log_is_found(home: Path, planted: tuple[str, str], logged: Path) -> None:
    name, secret = planted
    logged.write_text(f'{{"event": "failed", "error": "postgresql://query:{secret}@"}}\n')
    assert f"{name} in logs/projection.log" in leaks(secrets_of(home), home, [])


def test_a_secret_in_an_output_is_found(home: Path, planted: tuple[str, str]) -> None:
    name, secret = planted
    outputs = [("up", "fine"), ("status", f"Traceback: {secret}")]
    assert f"{name} in the output of status" in leaks(secrets_of(home), home, outputs)


def test_a_secret_in_a_command_line_is_found(home: Path, planted: tuple[str, str]) -> None:
    name, secret = planted
    waits = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", secret]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it runs
        leaked = leaks(secrets_of(home), home, [])
        assert process.stdin is not None
        process.stdin.close()
    assert f"{name} in the command line of {process.pid}" in leaked


def test_an_access_token_in_a_log_is_found(home: Path, logged: Path) -> None:
    token = TokenIssuer(home / "identity").token("alice", ["orders:read"], 1)
    logged.write_text(f"refused Bearer {token}\n")
    assert leaks(secrets_of(home), home, []) == ["an access token in logs/projection.log"]
