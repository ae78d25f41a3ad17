"""A hint is about the stack that the command was about."""

import pytest
import typer

from infra.cli.output import fail, notes

HINT = "not at rest: `./daybook status`, or `./daybook --stack compose drill containers`"


def noted(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(typer.Exit):
        fail(HINT)
    notes.print("Open: `./daybook logs`.", soft_wrap=True)
    return capsys.readouterr().err


def test_of_the_embedded_stack_it_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DAYBOOK_STACK", raising=False)
    assert noted(capsys) == f"daybook: {HINT}\nOpen: `./daybook logs`.\n"


def test_of_containers_it_names_them_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DAYBOOK_STACK", "compose")
    named = HINT.replace("`./daybook status`", "`./daybook --stack compose status`")
    assert noted(capsys) == f"daybook: {named}\nOpen: `./daybook --stack compose logs`.\n"
