"""`daybook`: the one command. Each file of infra/commands brings its own part as `app`."""

import os
from typing import Annotated

import typer

from infra.commands import (
    analytics,
    check_source,
    contracts,
    demo,
    drill,
    failover,
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
from infra.commands.two_sites import ONE_SITE
from infra.settings import StackSettings
from infra.sites.site import AWAY, HOME, sites_of

cli = typer.Typer(
    name="daybook",
    help="Daybook, an event-sourced shop on Kafka.\n\nBegin with `./daybook up`, then `./daybook status`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


@cli.callback()
def at_site(
    name: Annotated[
        str, typer.Option("--site", metavar="home|away", help="One site alone, of a stack with two.")
    ] = "",
) -> None:
    # No docstring: typer would show it in place of the help above.
    if not name:
        return
    found = sites_of(StackSettings())
    if name not in found:
        fail(f"there is no site {name}: `./daybook up --sites 2` makes {AWAY} beside {HOME}")
    own = found[name].settings
    # `eval "$(./daybook env)"` names one site's stores, and may have been about the other
    for store in ("DAYBOOK_KAFKA", "DAYBOOK_DATABASE_URL"):
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
