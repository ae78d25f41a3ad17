"""`daybook --stack compose drill containers`: the shop's containers broken under load, and what it cost."""

from __future__ import annotations

import shlex
from pathlib import Path
from random import Random
from typing import Annotated

import httpx
import typer
from confluent_kafka import KafkaException

from infra.base.settings import StackSettings
from infra.cli.output import fail, notes
from infra.cli.report_table import told
from infra.lab.drills.containers.blows import choose
from infra.lab.drills.containers.drill import break_containers, whole_shop
from infra.lab.drills.pair import DrillFailed
from infra.lab.drills.report import DrillReport
from infra.stack.compose.engine import EngineFailed
from infra.stack.compose.failing import Failure
from services.kernel.log.reader import NotCaughtUp
from services.kernel.record.envelope import format_time, now_micros

HELD_SECONDS = 3.0
FAILURES = (DrillFailed, EngineFailed, TimeoutError, NotCaughtUp, KafkaException, httpx.HTTPError)


def containers(
    failure: Annotated[
        list[Failure] | None,
        typer.Option(help="The failure; can be repeated. Without --container: for every running container."),
    ] = None,
    container: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A container, as `status` names it; can be repeated. Without --failure: all four.",
        ),
    ] = None,
    held: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="How long each failure lasts before it is repaired."),
    ] = HELD_SECONDS,
    seed: Annotated[
        int, typer.Option(help="Determines order and times of the failures, and the commands of the clients.")
    ] = 1,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Where the report goes.")
    ] = None,
) -> None:
    """Break containers of the running shop, one after the other, under load: with --stack compose.

    Clients send ten commands a second and repeat each until there is an outcome. Meanwhile a container is
    killed, paused, disconnected from the network or restarted, and repaired; when all respond again, the next
    one is broken. Six failures by default: a broker killed, PostgreSQL restarted, the order worker killed, the
    inventory worker paused, the projection disconnected, the order API restarted.

    The report shows for each failure how long no write was acknowledged and no read was served. At the end,
    every command must have an outcome, and the raw log must satisfy every invariant. The orders of the drill
    stay in the shop. Ctrl-C repairs what is broken, then ends.
    """
    _hold(failure or [], container or [], held, seed, out)


def _hold(failures: list[Failure], names: list[str], held: float, seed: int, out: Path | None) -> None:
    settings = StackSettings()
    if settings.stack != "compose":
        fail("this drill needs the containers: `./daybook --stack compose drill containers`")
    folder = out or settings.home / "drills" / f"containers-{seed}"
    typed = _typed(failures, names, held, seed)
    report = DrillReport("containers", seed, format_time(now_micros()), typed=typed)
    try:
        with notes.status("") as status:
            whole = whole_shop(settings)
            blows = choose(whole, failures, names, Random(f"containers {seed}"))
            folder.mkdir(parents=True, exist_ok=True)
            break_containers(settings, whole, blows, held, report, folder, status.update)
    except FAILURES as reason:
        fail(str(reason))
    told(report, folder)


def _typed(failures: list[Failure], names: list[str], held: float, seed: int) -> str:
    """The command that holds the same drill again."""
    said = [f"--failure {each}" for each in failures] + [f"--container {shlex.quote(each)}" for each in names]
    if held != HELD_SECONDS:
        said.append(f"--held {held:g}")
    return " ".join(["./daybook --stack compose drill containers", *said, f"--seed {seed}"])
