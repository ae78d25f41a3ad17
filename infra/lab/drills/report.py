"""What was promised beside what was measured, for people and for machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from infra.dr.steps import SiteStep


@dataclass(frozen=True)
class Promise:
    """One row, as a person reads it; `timed` where `measured` is a figure of this machine."""

    what: str
    promised: str
    measured: str
    kept: bool
    timed: bool = False


@dataclass
class DrillReport:
    """One drill. `figures` are numbers for other tools; `story` is what happened, in order; `lost` a line for
    each acknowledged command that did not cross; `typed` the command, where its name and seed do not say it
    all."""

    drill: str
    seed: int
    began_at: str
    promises: list[Promise] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    typed: str = ""

    @property
    def passed(self) -> bool:
        return all(promise.kept for promise in self.promises)

    def promise(self, what: str, promised: str, measured: str, kept: bool) -> None:
        self.promises.append(Promise(what, promised, measured, kept))

    def at_most(self, what: str, figure: float, bound: float, unit: str = "s") -> None:
        """A figure with an upper bound."""
        self.figures[what] = figure
        measured = f"{figure:.3g} {unit}"
        self.promises.append(Promise(what, f"≤ {bound:g} {unit}", measured, figure <= bound, timed=True))

    def nothing(self, what: str, found: list[str]) -> None:
        """What must not be there; the first few are named where it is."""
        shown = "; ".join(found[:3])
        self.promise(what, "none", "none" if not found else f"{len(found)}: {shown}", not found)


def write(report: DrillReport, folder: Path) -> None:
    """`report.json` and `report.md` in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.encode({**msgspec.to_builtins(report), "passed": report.passed})
    (folder / "report.json").write_bytes(msgspec.json.format(content, indent=2) + b"\n")
    (folder / "report.md").write_text(as_markdown(report))


def as_markdown(report: DrillReport) -> str:
    """The report as a page."""
    typed = report.typed or f"./daybook drill {report.drill} --seed {report.seed}"
    lines = [
        f"# Drill: {report.drill}, seed {report.seed}",
        "",
        f"Written by `{typed}`, which kills, asks and compares for real; nothing here is edited.",
        "",
        f"Held at {report.began_at}. {'All promises were kept.' if report.passed else 'NOT all were kept.'}",
        "",
        "| what | promised | measured | kept |",
        "|---|---|---|---|",
        *(
            f"| {_cell(each.what)} | {_cell(each.promised)} | {_cell(each.measured)} "
            f"| {'yes' if each.kept else '**no**'} |"
            for each in report.promises
        ),
        "",
        *_besides(report),
        "## What happened",
        "",
        *(f"{number}. {line}" for number, line in enumerate(report.story, start=1)),
    ]
    if report.lost:
        lines += [
            "",
            "## Acknowledged and lost, command by command",
            "",
            *(f"- {line}" for line in report.lost),
        ]
    return "\n".join(lines) + "\n"


def _besides(report: DrillReport) -> list[str]:
    """Figures that no promise bounds."""
    bounded = {promise.what for promise in report.promises}
    free = {name: figure for name, figure in report.figures.items() if name not in bounded}
    if not free:
        return []
    return ["## Counted besides", "", *(f"- {name}: {figure:,.4g}" for name, figure in free.items()), ""]


def step_line(step: SiteStep) -> str:
    """A step of a failover, for the story."""
    return f"{step.name}: {step.seconds:.2f} s {step.detail}".rstrip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
