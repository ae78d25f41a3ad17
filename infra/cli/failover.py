"""`daybook failover`, `daybook failback`: moving the shop to its other site, and back."""

from typing import Annotated, NoReturn

import msgspec
import typer
from confluent_kafka import KafkaException

from analytics.terminal import Table
from infra.base.errors import DaybookError
from infra.base.settings import StackSettings
from infra.cli import losses_shown
from infra.cli.output import fail, notes, results
from infra.dr.plan import PlanFile
from infra.dr.steps import NotDone, SiteStep
from infra.dr.switchover import Failover, abort, switch_over
from infra.dr.takeover import take_over
from services.kernel.log.reader import NotCaughtUp
from services.kernel.log.transactions import OwnershipLost

app = typer.Typer(invoke_without_command=True)
app.add_typer(losses_shown.app)

FAILURES = (NotDone, DaybookError, NotCaughtUp, TimeoutError, KafkaException, OwnershipLost)
AsJson = Annotated[bool, typer.Option("--json", help="For other tools.")]
Timeout = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Longest time for draining.")]


@app.callback()
def failover(
    context: typer.Context,
    planned: Annotated[
        bool, typer.Option("--planned", help="Both sites are alive; nothing is lost.")
    ] = False,
    unplanned: Annotated[bool, typer.Option("--unplanned", help="The active site is gone.")] = False,
    to: Annotated[
        str, typer.Option(metavar="home|away", help="The site to make active; default: the passive one.")
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="With --unplanned: even if the active site still responds.")
    ] = False,
    timeout: Timeout = 60.0,
    give_up: Annotated[
        bool, typer.Option("--abort", help="Accept requests again, after an interrupted --planned.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the other site active. If it is interrupted, run it again: it continues."""
    if context.invoked_subcommand:
        return
    if [planned, unplanned, give_up].count(True) != 1:
        raise typer.BadParameter("use --planned, --unplanned or --abort", param_hint="failover")
    settings = StackSettings()
    try:
        if give_up:
            notes.print(abort(settings))
            return
        with notes.status("Checking both sites") as status:
            if planned:
                done = switch_over(settings, to, timeout, status.update)
            else:
                done = take_over(settings, to, force, status.update)
    except FAILURES as reason:
        stop(settings, reason)
    if as_json:
        results.print(msgspec.json.encode(done).decode())
        return
    show(done)


def show(done: Failover) -> None:
    """The steps of one failover as a table, and what follows from it."""
    results.print(table_of(done.steps))
    seconds = done.seconds_without_writes
    said = "unknown, it was interrupted: see the steps" if seconds is None else f"{seconds:.1f} s"
    results.print(f"{done.target} is active in epoch {done.epoch}. Without writes: {said}.")
    if done.kind == "unplanned":
        results.print(
            f"{len(done.torn)} partially mirrored transactions. When {done.source} can be read again: "
            "`./daybook failover report`; then `./daybook failback`.",
        )


def table_of(steps: tuple[SiteStep, ...]) -> Table:
    table = Table("step", "seconds", "")
    for step in steps:
        table.add_row(step.name, f"{step.seconds:.2f}", step.detail)
    return table


def stop(settings: StackSettings, reason: BaseException) -> NoReturn:
    plan = PlanFile(settings).read()
    more = (
        "" if plan is None else f"\nThe {plan.kind} failover to {plan.target} is not finished: run it again."
    )
    fail(f"{reason}{more}")
