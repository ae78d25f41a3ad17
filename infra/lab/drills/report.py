"""A drill's report: each promise beside what was measured, for people and for programs."""

import csv
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from infra.dr.plan import SiteStep

RPO = "acknowledged writes lost, seconds before the last one"
RTO = "seconds without acknowledged writes"
RUN_COLUMNS = ("began at", "drill", "seed", "kept", "RPO seconds", "RTO seconds")


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
    """`figures` are numbers for other tools; `story` is what happened, in order: each step with the seconds since the
    drill began; `lost` has a line for each acknowledged command that did not cross; `typed` is the command, where name
    and seed are not all of it."""

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

    def none(self, what: str, names: list[str]) -> None:
        """Promise that there are none; the first few are named where there are some."""
        self.promise(what, "none", f"{len(names)}: {'; '.join(names[:3])}" if names else "none", not names)


def write(report: DrillReport, folder: Path) -> None:
    """`report.json` and `report.md` in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.encode({**msgspec.to_builtins(report), "passed": report.passed})
    (folder / "report.json").write_bytes(msgspec.json.format(content, indent=2) + b"\n")
    (folder / "report.md").write_text(as_markdown(report))


def append_run(report: DrillReport, file: Path) -> None:
    """Add the run to the table of all runs, as CSV. A figure that the drill does not measure is empty."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = not file.exists()
    with file.open("a", newline="") as out:
        lines = csv.writer(out)
        if new:
            lines.writerow(RUN_COLUMNS)
        seconds = [f"{report.figures[name]:.2f}" if name in report.figures else "" for name in (RPO, RTO)]
        kept = "yes" if report.passed else "no"
        lines.writerow([report.began_at, report.drill, report.seed, kept, *seconds])


def read_runs(file: Path) -> list[list[str]]:
    """The runs in the table, oldest first, without its header; empty where there is no table."""
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return list(csv.reader(lines))[1:]


def as_markdown(report: DrillReport) -> str:
    """The report as a page."""
    typed = report.typed or f"./daybook drill {report.drill} --seed {report.seed}"
    lines = [
        f"# Drill: {report.drill}, seed {report.seed}",
        "",
        f"Written by `{typed}`, from a real run; nothing here is edited.",
        "",
        f"Held at {report.began_at}. {'All promises were kept.' if report.passed else 'NOT all were kept.'}",
        "",
        "| what | promised | measured | kept |",
        "|---|---|---|---|",
        *(
            f"| {_cell(promise.what)} | {_cell(promise.promised)} | {_cell(promise.measured)} "
            f"| {'yes' if promise.kept else '**no**'} |"
            for promise in report.promises
        ),
        "",
        *_other_figures(report),
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


def _other_figures(report: DrillReport) -> list[str]:
    """Figures that no promise bounds."""
    bounded = {promise.what for promise in report.promises}
    free = {name: figure for name, figure in report.figures.items() if name not in bounded}
    if not free:
        return []
    return ["## Other figures", "", *(f"- {name}: {figure:,.4g}" for name, figure in free.items()), ""]


def step_line(step: SiteStep) -> str:
    """A step of a failover, for the story."""
    return f"{step.name}: {step.seconds:.2f} s {step.detail}".rstrip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
