"""A process that is told to stop ends with 0, one that cannot start or ends itself with 1."""

import signal
import socket
import subprocess
import sys

import pytest

from infra.base.ports import HOST
from infra.base.settings import ROOT
from infra.base.waiting import wait_until
from infra.stack.shop import http_ready
from services.kernel.exit_codes import EXIT_FAILED, EXIT_STOPPED
from tests.ports import free_ports

SECONDS = 120
ENDS_ITSELF = """
import sys, threading, time
from services.edge.app import application
from services.edge.server import end_process, serve
threading.Timer(1, {failure}).start()
sys.exit(serve(application((), lambda: None), "127.0.0.1", {port}))
"""


def started(port: int, *command: str, health_port: int = 0) -> "subprocess.Popen[bytes]":
    health_port = health_port or free_ports(1)[0]
    ports = {"DAYBOOK_HTTP_PORT": str(port), "DAYBOOK_HEALTH_PORT": str(health_port)}
    environment = {**ports, "PATH": "/usr/bin:/bin"}
    return subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop(number: signal.Signals) -> None:
    (port,) = free_ports(1)
    process = started(port, "-m", "infra.log.registry")
    wait_until(lambda: http_ready(f"http://{HOST}:{port}"), "the registry is ready", SECONDS)
    process.send_signal(number)
    assert process.wait(SECONDS) == EXIT_STOPPED


def test_a_port_that_is_taken() -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        taken, free = other.getsockname()[1], free_ports(1)[0]
        for ports in ((taken, free), (free, taken)):
            process = started(ports[0], "-m", "infra.log.registry", health_port=ports[1])
            assert process.wait(SECONDS) == EXIT_FAILED


@pytest.mark.parametrize("failure", ["end_process, ['half of it failed']", "divmod, [1, 0]"])
def test_an_error_that_ends_it(failure: str) -> None:
    """Said by the process, or an exception that a thread did not expect."""
    (port,) = free_ports(1)
    program = ENDS_ITSELF.format(port=port, failure=failure)
    assert started(port, "-c", program).wait(SECONDS) == EXIT_FAILED


def test_a_query_api_without_its_database() -> None:
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [sys.executable, "-m", "services.projection.main", "query"],
        cwd=ROOT,
        env={"DAYBOOK_HTTP_PORT": str(port), "DAYBOOK_DATABASE_URL": f"postgresql://a@{HOST}:1/a"},
        stdout=subprocess.DEVNULL,
    )
    assert process.wait(SECONDS) == EXIT_FAILED
