"""`daybook`: the one command. Each file of infra/commands brings its own part as `app`."""

import os
from enum import StrEnum
from typing import Annotated

import typer

from infra.commands import (
    analytics,
    check_source,
    contracts,
    demo,
    drill,
    failover,
    in_containers,
    inspect,
    lifecycle,
    load,
    marts,
    parked,
    rebuild,
    replay,
    sites,
    spark,
    topics,
)
from infra.commands.audit import audit
from infra.commands.notebook import notebook
from infra.commands.output import fail
from infra.commands.sound_settings import require_sound_settings
from infra.commands.two_sites import ONE_SITE
from infra.containers.engine import compose_home
from infra.settings import StackSettings
from infra.sites.site import AWAY, HOME, sites_of

# `eval "$(./daybook env)"` names one stack's stores, and may have been about another
STORES = ("DAYBOOK_KAFKA", "DAYBOOK_DATABASE_URL")


class Stack(StrEnum):
    embedded = "embedded"
    compose = "compose"


cli = typer.Typer(
    name="daybook",
    help="Daybook, an event-sourced shop on Kafka.\n\nBegin with `./daybook up`, then `./daybook status`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


@cli.callback()
def chosen(
    context: typer.Context,
    site: Annotated[
        str, typer.Option("--site", metavar="home|away", help="One site alone, of a stack with two.")
    ] = "",
    stack: Annotated[Stack, typer.Option("--stack", help="Processes here, or containers.")] = Stack.embedded,
) -> None:
    # No docstring: typer would show it in place of the help above.
    require_sound_settings()
    if stack is Stack.compose:
        _in_containers(context.invoked_subcommand or "", site)
    elif site:
        _at_site(site)


def _in_containers(command: str, site: str) -> None:
    if site or command in in_containers.NOT_HERE:
        fail(f"{'--site' if site else command} is of the embedded stack: leave --stack compose out")
    for store in STORES:
        os.environ.pop(store, None)
    home = compose_home(StackSettings().home)
    if not home.exists() and command not in in_containers.BEFORE_THE_FIRST_START:
        fail("the shop was never in containers here: `./daybook --stack compose up` starts it")
    os.environ |= {"DAYBOOK_STACK": Stack.compose, "DAYBOOK_HOME": str(home)}


def _at_site(name: str) -> None:
    found = sites_of(StackSettings())
    if name not in found:
        fail(f"there is no site {name}: `./daybook up --sites 2` makes {AWAY} beside {HOME}")
    own = found[name].settings
    for store in STORES:
        os.environ.pop(store, None)
    os.environ |= {
        "DAYBOOK_HOME": str(own.home),
        "DAYBOOK_PORT_BASE": str(own.port_base),
        "DAYBOOK_SITE": own.site,
        ONE_SITE: "1",
    }


for commands in (lifecycle, inspect, load, demo, rebuild, replay, topics):
    cli.add_typer(commands.app)
cli.command(rich_help_panel="The proof")(audit)
for commands in (marts, check_source):
    analytics.app.add_typer(commands.app)
cli.command(rich_help_panel="Analytics")(notebook)
cli.add_typer(analytics.app, name="analytics", rich_help_panel="Analytics")
cli.add_typer(sites.app, name="sites", rich_help_panel="Two sites")
cli.add_typer(failover.app, name="failover", rich_help_panel="Two sites")
cli.add_typer(failover.way_back)
cli.add_typer(drill.app, name="drill", rich_help_panel="Two sites")
cli.add_typer(spark.app, name="spark", rich_help_panel="Analytics")
cli.add_typer(parked.app, name="parked", rich_help_panel="Read models")
cli.add_typer(contracts.app, name="contracts", rich_help_panel="The language")


def main() -> None:
    cli(prog_name="daybook")


if __name__ == "__main__":
    main()
