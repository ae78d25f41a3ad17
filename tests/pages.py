"""Pages whose commands are executed: the README's first walk and the runbook.

A walk stands between `<!-- walk: begin NAME -->` and `<!-- walk: end -->`. Its `sh` and `bash` blocks are its steps;
they run in this order in one shell. Up to the next step a page may state three things about a step:

- a block without a language: what it prints. In it, every number stands for any number, and so do times and ids; `…`
  stands for any text of a line, a line with only `…` for any lines. Lines that only draw a table are not compared.
- `**Takes** 20 s`, on an idle machine, with a short log;
- `**If not**`: what the reader does then. It is for the reader alone.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import dedent

from infra.base.settings import ROOT

STEP = re.compile(r"^ *```(?:ba)?sh\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
PRINTED = re.compile(r"^ *```\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
TAKES = re.compile(r"\*\*Takes\*\* (\d+) (s|min)\b")
NUMBERED = re.compile(r"^(\d+)\. ", re.MULTILINE)
DRAWN = re.compile(r"[━┏┳┓┡╇┩┗┻┛─└┴┘├┼┤\s]*")

# What stands for itself and others of its kind: ids, times, numbers; then text that is left out, and spaces.
KINDS = (
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    r"\d{4}-?\d\d-?\d\dT[\d:.]+(?:Z|\+00:00)",
    r"\d[\d,]*(?:\.\d+)?",
)
TOKEN = re.compile("|".join(f"({kind})" for kind in (*KINDS, "…", r"[ \t]+")))
STANDS_FOR = (*KINDS, ".*", "[ \t]+")

# A page states the time on an idle machine. This is what it may take on a busy one, and at least, in seconds.
SLOWER, LEAST_SECONDS = 10.0, 60.0
MARK = "step of a walk:"


@dataclass(frozen=True)
class PageStep:
    """A command, and what the page states about it; None where it states nothing."""

    command: str
    printed: tuple[str, ...] | None
    seconds: float | None
    otherwise: bool

    @property
    def complete(self) -> bool:
        return self.printed is not None and self.seconds is not None and self.otherwise

    @property
    def limit(self) -> float:
        """The seconds after which a run of it has failed."""
        return SLOWER * LEAST_SECONDS if self.seconds is None else max(LEAST_SECONDS, SLOWER * self.seconds)


@dataclass(frozen=True)
class StepRun:
    """A step that was run: its output, errors included, its exit code and its seconds."""

    step: PageStep
    output: str
    exit_code: int
    seconds: float

    @property
    def difference(self) -> str:
        """What differs from the page, as a sentence; empty where nothing does."""
        if self.exit_code:
            return f"it ended with {self.exit_code}"
        if self.step.printed is not None and (line := departure(self.step.printed, self.output)):
            return line
        if self.seconds > self.step.limit:
            return f"it took {self.seconds:.0f} s, and the page says {self.step.seconds:.0f} s"
        return ""


def walk(page: str, name: str = "") -> list[PageStep]:
    """The steps of a walk of this page, a path in the repository. Raises ValueError unless its numbers count them."""
    text = (ROOT / page).read_text("utf-8")
    begin = f"<!-- walk: begin{' ' if name else ''}{name} -->"
    part = text.partition(begin)[2].partition("<!-- walk: end -->")[0]
    steps = steps_of(part)
    numbers = [int(number) for number in NUMBERED.findall(part)]
    if not steps or (numbers and numbers != list(range(1, len(steps) + 1))):
        raise ValueError(f"{page}, walk {name!r}: {len(steps)} commands in steps {numbers}")
    return steps


def steps_of(text: str) -> list[PageStep]:
    _, *parts = STEP.split(text)
    return [
        PageStep(dedent(command).strip(), printed(below), seconds(below), "**If not**" in below)
        for command, below in zip(parts[::2], parts[1::2], strict=True)
    ]


def printed(below: str) -> tuple[str, ...] | None:
    block = PRINTED.search(below)
    return None if block is None else lines_of(dedent(block[1]))


def seconds(below: str) -> float | None:
    takes = TAKES.search(below)
    return None if takes is None else float(takes[1]) * (60 if takes[2] == "min" else 1)


def lines_of(text: str) -> tuple[str, ...]:
    """Without empty lines and those that only draw a table."""
    return tuple(line.rstrip() for line in text.splitlines() if not DRAWN.fullmatch(line))


def departure(page: Sequence[str], output: str) -> str:
    """Where the output leaves the page, as a sentence; empty where it has exactly the lines of the page."""
    text = "".join(f"{line}\n" for line in lines_of(output))
    patterns = [pattern(line) for line in page]
    for count, line in enumerate(page, start=1):
        if not re.match("".join(patterns[:count]), text):
            return f"it does not print this line here: {line}"
    if not re.fullmatch("".join(patterns), text):
        return f"it prints more than the page's last line: {page[-1]}"
    return ""


def pattern(line: str) -> str:
    """The regular expression of a line of a page, with its end."""
    if line.strip() == "…":
        return r"(?:.*\n)*?"
    expression, at = "", 0
    for token in TOKEN.finditer(line):
        assert token.lastindex is not None
        expression += re.escape(line[at : token.start()]) + STANDS_FOR[token.lastindex - 1]
        at = token.end()
    return f"{expression}{re.escape(line[at:])}\n"


def run_walk(steps: Sequence[PageStep], environment: Mapping[str, str]) -> list[StepRun]:
    """Run the steps in one shell, up to the first that fails. Raises AssertionError where one hangs."""
    mark = f"mark() {{ printf '\\n{MARK} %s %s\\n' $? $EPOCHREALTIME; }}\ntrap mark EXIT"
    script = "\n".join([mark, *(f"mark\n{step.command}" for step in steps)])
    process = subprocess.Popen(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=ROOT,
        env={**environment, "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            output, _ = process.communicate(timeout=sum(step.limit for step in steps))
        except subprocess.TimeoutExpired as late:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"the walk hangs:\n{(late.output or b'').decode()}") from late
    return runs_of(steps, output)


def runs_of(steps: Sequence[PageStep], output: str) -> list[StepRun]:
    """The output cut at the marks: one before each step, with the exit code and the time, and one at the end."""
    began, *marks = re.split(rf"\n{MARK} (\d+) ([\d.]+)\n", output)[2:]
    runs = []
    for step, text, code, ended in zip(steps, marks[::3], marks[1::3], marks[2::3], strict=False):
        runs.append(StepRun(step, text, int(code), float(ended) - float(began)))
        began = ended
    return runs


def check(runs: Sequence[StepRun]) -> Sequence[StepRun]:
    """The same runs. Raises AssertionError where a step did not do what the page says."""
    for number, run in enumerate(runs, start=1):
        what = f"step {number}, `{run.step.command}`: {run.difference}\nIt printed:\n{run.output}"
        assert not run.difference, what
    return runs
