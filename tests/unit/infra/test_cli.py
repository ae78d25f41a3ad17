"""Only the files that the words ask for are imported: the table of who brings what is complete."""

from collections.abc import Sequence

import pytest
import typer.main

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


def test_an_expected_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = typer.Typer()

    @failing.command()
    def fails() -> None:
        raise PortTaken("port 1 (broker) is in use: stop its process")

    monkeypatch.setattr(cli, "command", lambda _: failing)
    monkeypatch.setattr("sys.argv", ["daybook"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "daybook: port 1 (broker) is in use: stop its process\n"
