"""`daybook --help` reads the sources and imports no command; what it shows agrees with the commands."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module

import pytest
from typer.testing import CliRunner

from infra.base.errors import PortTaken
from infra.base.settings import ROOT
from infra.cli import main as cli

# Slow to import, and needed by no help text.
SLOW = {"aiohttp", "asyncpg", "confluent_kafka", "fastapi", "httpx", "pandas", "psutil", "pyarrow", "pyspark"}
HELP = """
import sys
from infra.cli.main import command
try:
    command()(["--help"], prog_name="daybook")
finally:
    print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_summary_is_the_one_of_the_command(name: str) -> None:
    command = cli.implementation(name)
    assert command.name == name
    assert cli.summary(name) == inspect.cleandoc(command.help).partition("\n\n")[0] != ""


@pytest.mark.parametrize("file", sorted({file for file, _ in cli.COMMANDS.values()}))
def test_the_table_has_every_command(file: str) -> None:
    listed = {name for name in cli.COMMANDS if cli.COMMANDS[name][0] == file}
    app = import_module(f"infra.cli.{file}").app
    commands = {info.name or info.callback.__name__ for info in app.registered_commands}
    commands |= {info.name for info in app.registered_groups}
    assert listed == {file} or listed == commands


def test_help_lists_every_command_and_imports_none() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0
    assert [name for name in cli.COMMANDS if f" {name} " not in done.stdout] == []
    assert SLOW & set(done.stderr.split()) == set()


def test_an_unknown_command_is_refused() -> None:
    ended = CliRunner().invoke(cli.command(), ["no-such-command"])
    assert ended.exit_code == 2
    assert "No such command" in ended.stderr


@pytest.mark.parametrize("typed", [["token", "a\nb"], ["--site", "\n", "status"], ["rebuild", "orders\n"]])
def test_a_line_break_is_refused_in_one_line(typed: list[str]) -> None:
    ended = CliRunner().invoke(cli.command(), typed)
    assert ended.exit_code == 1
    assert ended.output == "daybook: an argument has a line break: write it in one line\n"


def test_an_expected_error_is_one_line() -> None:
    app = cli.command()

    @app.command()
    def fails() -> None:
        raise PortTaken("port 1 (broker) is in use: stop its process")

    ended = CliRunner().invoke(app, ["fails"])
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr == "daybook: port 1 (broker) is in use: stop its process\n"


def test_a_thread_that_still_waits_does_not_hold_up_or_abort_the_end() -> None:
    script = (
        "import threading, time\n"
        "from infra.base.background import Impatient\n"
        "from infra.cli import main\n"
        "def command(): Impatient(lambda: time.sleep(60)); print('shown'); raise SystemExit(3)\n"
        "import atexit; atexit.register(print, 'Python ended by itself')\n"
        "main.command = lambda: lambda prog_name: command()\n"
        "main.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, "shown\n")
