"""A site's brokers that run alone: the order of their ends, and a start that fails. Shells stand for the nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.base.errors import NotReady
from infra.base.settings import INSECURE, StackSettings
from infra.stack.embedded import kafka
from infra.stack.embedded.child import Program
from infra.stack.embedded.kafka import Node, brokers_alone

# A file says that it runs, and a line that it was stopped.
NODE = """
trap 'echo {name} >> {folder}/ended; exit 0' TERM
touch {folder}/{name}.runs
while :; do sleep 0.05; done"""


class Shell(Node):
    """A node that is ready as soon as its shell runs; one named `broken` ends at once."""

    @property
    def started(self) -> Path:
        return self.folder.parent / f"{self.name}.runs"

    def prepare(self) -> Program:
        script = NODE.format(name=self.name, folder=self.folder.parent)
        return Program(self.name, ("sh", "-c", "exit 3" if self.name == "broken" else script))

    def ready(self) -> bool:
        return self.started.exists()


@pytest.fixture
def site(tmp_path: Path) -> StackSettings:
    (tmp_path / INSECURE).touch()
    return StackSettings(home=tmp_path, port_base=20_000)


def let_run(monkeypatch: pytest.MonkeyPatch, site: StackSettings, *rows: list[str]) -> None:
    nodes = [[Shell(0, "broker", site.home / name, 0, "", "") for name in row] for row in rows]
    monkeypatch.setattr(kafka, "site_nodes", lambda *_, **__: nodes)


def ended(site: StackSettings) -> list[str]:
    file = site.home / "ended"
    return file.read_text().split() if file.exists() else []


def test_brokers_end_before_their_controllers(site: StackSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    let_run(monkeypatch, site, ["controller"], ["broker", "broker-1"])
    with brokers_alone(site) as bootstrap:
        assert bootstrap == site.kafka
        assert {file.stem for file in site.home.glob("*.runs")} == {"controller", "broker", "broker-1"}
        assert ended(site) == []
    *brokers, controller = ended(site)
    assert (sorted(brokers), controller) == (["broker", "broker-1"], "controller")


def test_the_others_end_where_one_does_not_start(
    site: StackSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_run(monkeypatch, site, ["controller"], ["broker", "broken"], ["never"])
    with pytest.raises(NotReady, match="broken ended with 3"), brokers_alone(site):
        pass
    assert ended(site)[-1] == "controller"
    assert not (site.home / "never.runs").exists()
