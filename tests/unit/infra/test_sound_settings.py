"""A setting that cannot be is one line that names it and what it must be."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.cli.main import command as daybook


@pytest.mark.parametrize(
    ("name", "value", "must_be"),
    [
        *(("PORT_BASE", base, "a whole number from 1024 to 65435") for base in ("abc", "99999", "80", "")),
        ("SITE", "abroad", "home or away"),
        ("STACK", "cloud", "embedded or compose"),
    ],
)
@pytest.mark.parametrize("command", ["status", "rebuild orders", "--site home status"])
def test_a_setting_out_of_bounds(
    name: str, value: str, must_be: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYBOOK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(f"DAYBOOK_{name}", value)
    done = CliRunner().invoke(daybook(), command.split())
    assert (done.exit_code, done.stderr) == (
        1,
        f"daybook: DAYBOOK_{name} is {value!r}: it must be {must_be}\n",
    )
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("below", ["", "below", "far/below"])
def test_a_home_that_cannot_be_made(below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("DAYBOOK_HOME", str(file / below))
    done = CliRunner().invoke(daybook(), ["status"])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"daybook: DAYBOOK_HOME is '{file / below}': it must be a folder")
    assert done.stderr.count("\n") == 1
