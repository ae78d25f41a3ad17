"""`daybook failover`: makes the other site active."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from analytics.terminal import Table
from infra.base.settings import StackSettings
from infra.cli import losses
from infra.cli.acts import FAILURES, Why, only_command, recorded
from infra.cli.lifecycle import client_settings
from infra.cli.output import AsJson, fail, notes, print_json, results
from infra.dr.failover import Failover, Takeover, abort, possible_takeover, switch_over, take_over
from infra.dr.incident import situation
from infra.dr.last_lag import forecast, last_known, staleness
from infra.dr.plan import SiteStep
from services.kernel.record.envelope import now_micros

app = typer.Typer(invoke_without_command=True)
app.add_typer(losses.app)  # report, reconcile

LOSS = (
    "{target} becomes the active site. What is lost is listed afterwards if the disk of {source} can be read. {source} "
    "must be rebuilt before it is a copy again."
)
Confirmed = Annotated[
    str, typer.Option("--confirm", metavar="SITE", help="The site's name, instead of typing it when asked.")
]
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
    confirmed: Confirmed = "",
    timeout: Timeout = 60.0,
    give_up: Annotated[
        bool, typer.Option("--abort", help="Accept requests again, after an interrupted --planned.")
    ] = False,
    as_json: AsJson = False,
    why: Why = "",
) -> None:
    """Make the other site active. If it is interrupted, run it again: it continues."""
    if context.invoked_subcommand:
        return
    if [planned, unplanned, give_up].count(True) != 1:
        raise typer.BadParameter("use --planned, --unplanned or --abort", param_hint="failover")
    settings = client_settings()
    with only_command(settings, "failover"), failing(settings):
        if give_up:
            with recorded("failover --abort", "", why):
                notes.print(abort(settings))
            return
        if planned:
            act = recorded("failover --planned", to, why)
            with act, notes.status("Checking both sites") as status:
                done = switch_over(settings, to, timeout, status.update)
        if unplanned:
            plan = _agreed_takeover(settings, to, force, confirmed)
            with recorded("failover --unplanned", plan.target.name, why), notes.status("") as status:
                done = take_over(plan, status.update)
    if as_json:
        print_json(done)
        return
    show(done)


def _agreed_takeover(settings: StackSettings, to: str, force: bool, confirmed: str) -> Takeover:
    """What the operator agrees to. To type it may take minutes, in which the other site may come back."""
    plan = possible_takeover(settings, to, force)
    typed = confirm_site(plan.target.name, _what_is_lost(plan), confirmed)
    if typed and possible_takeover(settings, to, force).switch != plan.switch:
        fail("nothing was changed: the sites have changed meanwhile, run it again")
    return plan


def show(done: Failover) -> None:
    """Print the steps of a failover as a table, and its result."""
    results.print(table_of(done.steps))
    seconds = done.seconds_without_writes
    duration = "unknown, it was interrupted: see the steps" if seconds is None else f"{seconds:.1f} s"
    results.print(f"{done.target} is active in epoch {done.epoch}. Without writes: {duration}.")
    if done.kind == "unplanned":
        results.print(
            f"{len(done.torn)} partially mirrored transactions at the end of the log. What else was not copied, "
            f"only the disk of {done.source} shows: `./daybook failover report` lists it. Then `./daybook failback`."
        )


def table_of(steps: tuple[SiteStep, ...]) -> Table:
    return Table(
        "step", "seconds", "", rows=((step.name, f"{step.seconds:.2f}", step.detail) for step in steps)
    )


def _what_is_lost(plan: Takeover) -> str:
    source, target, now = plan.source.name, plan.target.name, now_micros()
    last = last_known(plan.target)
    stale = staleness(last, plan.switch.epoch - 1, now)
    warning = f"Do not do it unless you must: {stale}.\n" if stale else ""
    return f"{forecast(source, target, last, now)}\n{warning}{LOSS.format(source=source, target=target)}"


@contextmanager
def failing(settings: StackSettings) -> Iterator[None]:
    """Ends the command on an expected error, with what an unfinished failover needs."""
    try:
        yield
    except FAILURES as reason:
        fail(f"{reason}{_unfinished(settings)}")


def _unfinished(settings: StackSettings) -> str:
    """A line about a failover that is under way; empty where there is none, or no site says so."""
    try:
        history = situation(settings).history
    except FAILURES:
        return ""
    return f"\n{history.standing}" if history.unfinished else ""


def confirm_site(site: str, consequences: str, confirmed: str) -> bool:
    """Go on only when the operator types the site's name, or gave it beforehand. Returns whether it was typed."""
    for line in consequences.splitlines():
        notes.print(line)
    if typed := not confirmed and sys.stdin.isatty():
        confirmed = typer.prompt(f"Type {site} to go on", err=True)
    if confirmed != site:
        fail(f"nothing was changed: add `--confirm {site}` to agree")
    return typed
