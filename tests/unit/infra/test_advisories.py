"""No published advisory that the repository lists is about what the lock files name, unless a reason is given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.base.settings import ROOT
from infra.cli import sbom
from infra.cli.sbom import ADVISORIES, app, document, matches

LIST = """
pypi/parser    <1.4            CVE-1
pypi/parser    >=2.0,<=2.3.1   CVE-2
maven/a/core   >=2.21,<2.21.7  CVE-3
docker/db      >=18,<18.6      CVE-4

[accepted]
maven/a/core  CVE-3  nothing reads such files
"""


def matching(purl: str, kind: str = "library") -> list[str]:
    return [match.id for match in matches([{"purl": f"pkg:{purl}", "type": kind}], LIST)]


def test_nothing_that_is_locked_is_affected_without_a_reason() -> None:
    matched = matches(document(ROOT)["components"], ADVISORIES.read_text("utf-8"))
    assert [match for match in matched if not match.accepted] == []


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.3.9", ["CVE-1"]),
        ("1.4", []),
        ("1.4.0", []),
        ("2.0", ["CVE-2"]),
        ("2.3.1", ["CVE-2"]),
        ("2.3.1.1", []),
        ("1.10", []),
    ],
)
def test_a_version_is_compared_number_by_number(version: str, expected: list[str]) -> None:
    assert matching(f"pypi/parser@{version}") == expected


def test_the_newest_image_of_a_line_counts_as_mended_and_a_package_without_its_last_number_as_the_first() -> (
    None
):
    assert matching("docker/db@18", "container") == []
    assert matching("docker/db@18.5", "container") == ["CVE-4"]
    assert matching("maven/a/core@2.21") == ["CVE-3"]
    assert matching("maven/a/core@2.21.7.Final") == []


def test_every_line_of_the_list_is_read_and_every_reason_is_about_one() -> None:
    ranges, _, reasons = ADVISORIES.read_text("utf-8").partition("[accepted]\n")
    rows = [line.split() for line in ranges.splitlines() if line and not line.startswith("#")]
    limit = r"[<>]=?[\w.+-]+"
    assert [row for row in rows if len(row) != 3 or not re.fullmatch(rf"{limit}(,{limit})?", row[1])] == []
    listed = {(package, number) for package, _, number in rows}
    accepted = [tuple(line.split(maxsplit=2)[:2]) for line in reasons.splitlines()]
    assert [reason for reason in accepted if reason not in listed] == []


def test_the_command_names_what_is_affected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CliRunner().invoke(app, ["--advisories"]).exit_code == 0
    planted = tmp_path / "advisories.txt"
    planted.write_text("maven/org.apache.kafka/kafka_2.13  <4.4  CVE-5\n[accepted]\n")
    monkeypatch.setattr(sbom, "ADVISORIES", planted)
    shown = CliRunner().invoke(app, ["--advisories"])
    assert shown.exit_code == 1
    assert "1 of 1 advisories are not accepted: maven/org.apache.kafka/kafka_2.13 4.3.1" in " ".join(
        shown.output.split()
    )
