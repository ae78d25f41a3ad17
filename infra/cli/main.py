"""`daybook`: the one command. Each file of infra/cli brings its own part as `app`."""

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from infra.base.errors import DaybookError
from infra.base.settings import StackSettings
from infra.cli.output import fail
from infra.cli.sound_settings import require_sound_settings

# What each file of infra/cli brings: only the one that is asked for is imported, for all of them
# together take a second.
COMMANDS = {
    "lifecycle": ("up", "down", "clean"),
    "inspect": ("status", "env", "logs"),
    "load": ("load",),
    "demo": ("demo",),
    "rebuild": ("rebuild",),
    "replay": ("replay",),
    "topics": ("topics",),
    "audit": ("audit",),
    "notebook": ("notebook",),
    "failback": ("failback",),
}
# Files whose commands stand under the file's name, and where `--help` shows that.
GROUPS = {
    "analytics": "Analytics",
    "sites": "Two sites",
    "failover": "Two sites",
    "drill": "Two sites",
    "spark": "Analytics",
    "parked": "Read models",
    "streams": "Read models",
    "contracts": "Contracts",
}

HELP = """Daybook, an example shop with event sourcing and CQRS on Kafka.

Start with `./daybook up`, then `./daybook status`."""

# `eval "$(./daybook env)"` names one stack's stores, and may have been about another
STORES = ("DAYBOOK_KAFKA", "DAYBOOK_DATABASE_URL")


class Stack(StrEnum):
    embedded = "embedded"
    compose = "compose"


class Commands(TyperGroup):
    """All commands. An expected error, of the tree in `infra/__init__.py`, is one line and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DaybookError as error:
            fail(str(error))


def command(words: Sequence[str]) -> typer.Typer:
    """The command, with the part that `words` ask for; with every part where they name none."""
    cli = typer.Typer(
        name="daybook",
        cls=Commands,
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_show_locals=False,
    )
    cli.callback()(chosen)
    for file in _files(words):
        app = import_module(f"infra.cli.{file}").app
        if file in GROUPS:
            cli.add_typer(app, name=file, rich_help_panel=GROUPS[file])
        else:
            cli.add_typer(app)
    return cli


def _files(words: Sequence[str]) -> Sequence[str]:
    brought_by = {name: file for file, names in COMMANDS.items() for name in names}
    brought_by |= {name: name for name in GROUPS}
    asked = next((word for word in words if word in brought_by or word == "--help"), "--help")
    return [*COMMANDS, *GROUPS] if asked == "--help" else [brought_by[asked]]


def chosen(
    context: typer.Context,
    site: Annotated[
        str, typer.Option("--site", metavar="home|away", help="Act on one site of a stack with two.")
    ] = "",
    stack: Annotated[
        Stack, typer.Option("--stack", help="Run as processes or as containers.")
    ] = Stack.embedded,
) -> None:
    # No docstring: typer would show it in place of the help above.
    if "--help" not in sys.argv:
        require_sound_settings()
    if stack is Stack.compose:
        _in_containers(context.invoked_subcommand or "", site)
    elif site:
        _at_site(site)


def _in_containers(command: str, site: str) -> None:
    # Only here and below: the other commands need not wait for them.
    from infra.cli import in_containers
    from infra.stack.compose.engine import compose_home

    if site or command in in_containers.NOT_HERE:
        fail(f"{'--site' if site else command} works only on the embedded stack: omit --stack compose")
    for store in STORES:
        os.environ.pop(store, None)
    home = compose_home(StackSettings().home)
    if not home.exists() and command not in in_containers.BEFORE_THE_FIRST_START:
        fail("the shop has never run in containers here: `./daybook --stack compose up` starts it")
    os.environ |= {"DAYBOOK_STACK": Stack.compose, "DAYBOOK_HOME": str(home)}


def _at_site(name: str) -> None:
    from infra.cli.two_sites import ONE_SITE
    from infra.stack.site import AWAY, HOME, sites_of

    found = sites_of(StackSettings())
    if name not in found:
        fail(f"there is no site {name}: `./daybook up --sites 2` creates {AWAY} beside {HOME}")
    own = found[name].settings
    for store in STORES:
        os.environ.pop(store, None)
    os.environ |= {
        "DAYBOOK_HOME": str(own.home),
        "DAYBOOK_PORT_BASE": str(own.port_base),
        "DAYBOOK_SITE": own.site,
        ONE_SITE: "1",
    }


def main() -> None:
    command(sys.argv[1:])(prog_name="daybook")
