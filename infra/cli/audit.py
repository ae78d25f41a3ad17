"""`daybook audit`: the log, the read models and Spark compared. And how every job of analytics runs."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from analytics.settings import located
from analytics.terminal import lines
from infra.base.settings import ROOT, StackSettings
from infra.cli.inspect import running_settings
from infra.cli.output import notes
from infra.stack.embedded.java import spark_environment
from infra.stack.shop import addresses

STEP = "… "
NOT_MADE = 2

app = typer.Typer()


@app.command()
def audit(
    expectation: Annotated[
        Path | None, typer.Option(help="What the loader expects: the JSON lines that `daybook load` wrote.")
    ] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the read models to catch up.")] = 60,
    out: Annotated[
        Path | None, typer.Option(help="Folder for audit.json and audit.html; default: in .daybook/.")
    ] = None,
) -> None:
    """Prove that the log, the read models and Spark agree, order by order and SKU by SKU.

    Exit code 0: identical. 1: not identical (prints the keys, each with the first version that differs), or keys are
    stopped and wait for a decision. 2: the audit could not be made. Foreign records are listed and change nothing.
    """
    settings = running_settings(NOT_MADE)
    report = (out or settings.home / "audit").absolute()
    arguments = ["--wait", str(wait), "--out", str(report)]
    if expectation is not None:
        arguments += ["--expectation", str(expectation.absolute())]
    code = run_job("analytics.jobs.audit", arguments, settings)
    if code != NOT_MADE:
        notes.print(f"report: {report}/audit.html")
    raise typer.Exit(code)


def run_job(module: str, arguments: list[str], settings: StackSettings) -> int:
    """Run an analytics job, show its current step, and return its exit code."""
    settings.home.mkdir(parents=True, exist_ok=True)
    with notes.status("fetching Spark's jars"):
        environment = spark_environment() | addresses(settings)
    output: list[str] = []
    with notes.status("starting") as status:
        job = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=os.environ | environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in job.stderr or ():
            if line.startswith(STEP):
                status.update(line.removeprefix(STEP).strip())
            else:
                output.append(line)
        code = job.wait()
    if code not in (0, 1) or (code == 1 and any(line.startswith("Traceback") for line in output)):
        killed = f"daybook: the job was ended by signal {-code}, of the system usually for want of memory"
        reasons = [line for line in output if line.startswith("daybook: ")]
        reasons = reasons or ([killed] if code < 0 else output[-30:])
        notes.print(lines("".join(reasons).strip().expandtabs()))
        return NOT_MADE
    return code


def lake_location(settings: StackSettings, named: str = "") -> str:
    """The lake's folder or URI: the one that a command has `named`, or the default."""
    return located(named or os.environ.get("DAYBOOK_LAKE") or str(settings.home / "lake"))


def marts_location(settings: StackSettings, named: str = "") -> str:
    """The folder or URI of the marts: the one that a command has `named`, or the default."""
    return located(named or os.environ.get("DAYBOOK_MARTS") or str(settings.home / "marts"))
