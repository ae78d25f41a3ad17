"""Only the files that the words ask for are imported: the table of who brings what is complete."""

from collections.abc import Sequence

import pytest
import typer.main
from typer.testing import CliRunner

from infra.base.errors import PortTaken
from infra.cli import main as cli


def commands(words: Sequence[str]) -> set[str]:
    group = typer.main.get_command(cli.command(words))
    return set(group.list_commands(None))  # type: ignore[attr-defined]


EVERYTHING = commands([])


def test_every_file_brings_what_the_table_says() -> None:
    assert {name for names in cli.COMMANDS.values() for name in names} | set(cli.GROUPS) == EVERYTHING


@pytest.mark.parametrize("name", sorted(EVERYTHING))
def test_a_command_is_found_alone(name: str) -> None:
    assert name in commands(["--site", "home", name, "--help"])


@pytest.mark.parametrize("words", [["--help"], ["--help", "up"], ["no-such-command"]])
def test_who_asks_for_help_sees_everything(words: list[str]) -> None:
    assert commands(words) == EVERYTHING


def test_an_expected_error_is_one_line() -> None:
    app = cli.command(["status"])

    @app.command()
    def fails() -> None:
        raise PortTaken("port 1 (broker) is in use: stop its process")

    ended = CliRunner().invoke(app, ["fails"])
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr == "daybook: port 1 (broker) is in use: stop its process\n"
