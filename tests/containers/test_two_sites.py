"""A second site in containers takes over under load: the drill of the embedded stack, on this platform."""

from pathlib import Path

import pytest

from infra.lab.drills.report import DrillReport, as_markdown
from infra.stack.shop import MIRROR
from tests.containers.shop import ContainerShop, eventually, read_report

pytestmark = pytest.mark.timeout(900)


def test_a_planned_switchover_loses_nothing(shop: ContainerShop, tmp_path: Path) -> None:
    """The last test of the default profile: home is the passive site afterwards."""
    shop.run("up", "--sites", "2")
    code, output = shop.ended("drill", "planned", "--running", "--out", str(tmp_path))
    assert (tmp_path / "report.json").exists(), output
    report: DrillReport = read_report(tmp_path)
    # a time is a figure of the machine
    assert [promise for promise in report.promises if not promise.kept and not promise.timed] == [], (
        as_markdown(report)
    )
    assert code == (0 if report.passed else 1)
    assert report.figures["repeats of what crossed"] > 10

    # `sites` has two seconds for its answer: what a busy machine does not read in time, it does not know
    def shown() -> bool:
        output = shop.run("sites", "--json")
        return f'"{MIRROR}":"held"' in output and '"role":"passive","epoch":2' in output

    eventually(shown, "`sites` shows home as the passive site, with its mirror held")
