"""`daybook up`, `status`, `down` as a user types them, with the two stores alone."""

import os
import re
import signal
import socket
import sys
import threading
from pathlib import Path

import psutil
import pytest

from infra.base.files import socket_folder
from infra.base.journal import Phase, StackJournal
from infra.base.ports import HOST
from infra.base.settings import StackSettings
from infra.stack.embedded.child import Program
from infra.stack.embedded.postgres import MAJOR
from infra.stack.embedded.stack import Member
from infra.stack.embedded.supervisor import Supervisor
from infra.stack.shop import http_ready
from services.kernel.exit_codes import EXIT_FAILED, EXIT_LOST, EXIT_STOOD_DOWN
from tests.integration.infra.conftest import SECONDS, Shop, eventually
from tests.ports import free_base

pytestmark = pytest.mark.long


def test_up_waits_until_ready_and_down_leaves_nothing_but_state(shop: Shop) -> None:
    up = shop.up()
    assert up.returncode == 0, up.stderr
    assert f"DAYBOOK_KAFKA=sasl_ssl://{HOST}:{shop.base + 92}?identity=" in up.stdout
    status = shop.run("status")
    assert status.returncode == 0, status.stdout
    assert "broker" in status.stdout and "postgres" in status.stdout
    addresses, _, header = shop.run("env").stdout.partition("DAYBOOK_AUTH=")
    assert (database := f"postgresql://auditor@{HOST}:{shop.base + 32}/daybook") in up.stdout
    assert re.sub(r"auditor:[^@]+@", "auditor@", addresses) == up.stdout
    assert database not in addresses, "`env` has the password, which `up` does not print"
    assert header.startswith("'Authorization: Bearer ")
    assert shop.run("topics", "--check").returncode == 0
    again = shop.up()
    assert again.returncode == 1
    assert "already running" in again.stderr
    pids = shop.pids()
    assert len(pids) == 2
    assert shop.run("down").returncode == 0
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert shop.run("status").returncode == 1
    shop.start()
    created = [event["detail"] for event in shop.journal.events() if event["event"] == "topics"]
    assert created[1] == "0 created"


def test_a_process_that_dies_is_started_again_and_the_event_shows(shop: Shop) -> None:
    shop.start()
    pid = shop.member("postgres").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: shop.member("postgres").restarts > 0 and shop.member("postgres").ready)
    assert shop.member("postgres").pid != pid
    assert shop.member("broker").restarts == 0
    assert "postgres died exit code -9" in shop.run("status").stdout


def test_a_process_that_runs_and_does_nothing_is_killed_and_started_again(shop: Shop) -> None:
    assert shop.run("up", "--only", "registry").returncode == 0
    pid = shop.member("registry").pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: shop.member("registry").restarts > 0 and shop.member("registry").ready)
    assert shop.member("registry").pid != pid
    assert "stalled" in {event["event"] for event in shop.journal.events()}


def test_a_paused_supervisor_is_stopped_too(shop: Shop) -> None:
    assert shop.run("up", "--only", "registry").returncode == 0
    os.kill(shop.state().supervisor, signal.SIGSTOP)
    down = shop.run("down")
    assert down.returncode == 0, down.stderr
    assert shop.pids() == []


def test_no_process_outlives_a_supervisor_that_is_killed(shop: Shop) -> None:
    shop.start()
    pids = shop.pids()
    os.kill(shop.state().supervisor, signal.SIGKILL)
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    assert shop.run("status").returncode == 1
    shop.start()


def test_a_taken_port_is_told_in_one_line_and_nothing_is_left(shop: Shop) -> None:
    with socket.socket() as other:
        # Connections of the stack before may still be fading away at this port.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((HOST, shop.base + 32))
        other.listen()
        up = shop.up()
    assert up.returncode == 1
    assert "of postgres is taken" in up.stderr
    assert "DAYBOOK_PORT_BASE" in up.stderr
    assert shop.pids() == []
    env = shop.run("env")  # whoever took the port may be another checkout
    assert (env.returncode, env.stdout) == (1, "")
    assert "the stack is not running" in env.stderr


def test_a_stack_that_cannot_start_is_cleaned_up(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "home" / "broker").mkdir()
    (tmp_path / "home" / "broker" / "logs").write_text("in the way of the broker's folder")
    up = shop.up()
    assert up.returncode == 1
    assert "broker" in up.stderr
    assert shop.pids() == []
    failed = [event for event in shop.journal.events() if event["event"] == "failed"]
    assert len(failed) == 1


def test_a_database_of_another_version_is_put_aside_and_a_new_one_made(shop: Shop, tmp_path: Path) -> None:
    folder = tmp_path / "home" / "postgres"
    (folder / "cluster").mkdir(parents=True)
    (folder / "cluster" / "PG_VERSION").write_text("16\n")
    up = shop.run("up", "--only", "postgres")
    assert up.returncode == 0, up.stderr
    assert f"moved to {folder / 'cluster.16'}" in up.stderr
    assert (folder / "cluster.16" / "PG_VERSION").read_text() == "16\n"
    assert (folder / "cluster" / "PG_VERSION").read_text() == f"{MAJOR}\n"


def test_clean_removes_the_state(shop: Shop, tmp_path: Path) -> None:
    shop.start()
    socket = socket_folder(tmp_path / "home" / "postgres" / "socket")
    assert socket.exists()
    assert shop.run("clean", "--yes").returncode == 0
    assert not (tmp_path / "home").exists()
    assert not socket.exists()


@pytest.mark.parametrize("command", [("clean", "--yes"), ("up",)])
def test_it_is_refused_while_another_command_changes_the_shop(
    shop: Shop, tmp_path: Path, command: tuple[str, ...]
) -> None:
    with shop.journal.sole_change("site rebuild away"):
        refused = shop.run(*command)
    assert refused.returncode == 1
    assert "`daybook site rebuild away` (pid" in refused.stderr
    assert (tmp_path / "home").exists()


@pytest.mark.parametrize("site", ["home", "away"])
def test_clean_does_not_remove_one_site_of_two(shop: Shop, tmp_path: Path, site: str) -> None:
    (tmp_path / "home" / "away").mkdir(parents=True)
    clean = shop.run("--site", site, "clean", "--yes")
    assert clean.returncode == 1
    assert "clean removes both sites: omit --site" in clean.stderr
    assert (tmp_path / "home" / "away").exists()


def test_wrong_use_is_exit_code_2(shop: Shop, tmp_path: Path) -> None:
    assert shop.run("up", "--sites", "2", "--only", "brokr").returncode == 2
    assert not (tmp_path / "home" / "away").exists(), "a refused command changes nothing"
    assert shop.run("logs", "brokr").returncode == 2
    assert shop.run("nonsense").returncode == 2
    assert "up" in shop.run("--help").stdout
    assert not http_ready(f"http://{HOST}:{shop.base}")


def test_a_worker_that_stands_down_is_not_shown_as_dead(tmp_path: Path) -> None:
    def member(name: str, code: int) -> Member:
        command = (sys.executable, "-c", f"import sys, time; time.sleep(0.5); sys.exit({code})")
        return Member(name, (), lambda: Program(name, command), lambda: True, seconds=SECONDS)

    settings = StackSettings(home=tmp_path, port_base=free_base())
    journal = StackJournal(tmp_path)
    supervisor = Supervisor(
        settings, journal, [[member("stands-down", EXIT_STOOD_DOWN), member("dies", EXIT_LOST)]]
    )
    thread = threading.Thread(target=supervisor.run)
    thread.start()

    def of(name: str) -> list[str]:
        return [event["event"] for event in journal.events() if event["process"] == name]

    eventually(lambda: "died" in of("dies") and of("stands-down").count("started") > 1)
    supervisor.request_stop()
    thread.join(SECONDS)
    assert "stood_down" in of("stands-down")
    assert "died" not in of("stands-down")


@pytest.mark.parametrize(("code", "starts"), [(EXIT_LOST, True), (EXIT_FAILED, False)])
def test_a_start_goes_on_after_an_end_that_passes(tmp_path: Path, code: int, starts: bool) -> None:
    """As of a worker whose broker paused on a busy machine while the shop was starting."""
    second = tmp_path / "second"
    script = (
        "import pathlib, sys, time; seen = pathlib.Path(sys.argv[1]); first = not seen.exists(); seen.touch(); "
        f"sys.exit({code}) if first else time.sleep({SECONDS})"
    )
    worker = Member(
        "worker",
        (),
        lambda: Program("worker", (sys.executable, "-c", script, str(second))),
        lambda: starts_of_worker() == 2,
        seconds=SECONDS,
    )
    settings, journal = StackSettings(home=tmp_path, port_base=free_base()), StackJournal(tmp_path)

    def starts_of_worker() -> int:
        return [event["event"] for event in journal.events()].count("started")

    supervisor = Supervisor(settings, journal, [[worker]])
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    ends = {Phase.RUNNING, Phase.FAILED}
    eventually(lambda: (state := journal.read()) is not None and state.phase in ends)
    supervisor.request_stop()
    thread.join(SECONDS)
    events = [event["event"] for event in journal.events()]
    assert ("running" in events, starts_of_worker()) == (starts, 1 + starts)
