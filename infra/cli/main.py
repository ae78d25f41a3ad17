"""`daybook`: the one command. Each file of infra/cli has the commands of one subject, as `app`."""

import ast
import os
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import typer.main
from pydantic import ValidationError
from typer.core import TyperCommand, TyperGroup

from contracts.kafka_address import sibling
from infra.base.errors import DaybookError
from infra.base.settings import HIGHEST_BASE, LOWEST_BASE, StackSettings
from infra.cli.output import fail

# The file of infra/cli with each command or group, and its panel in `--help`.
COMMANDS = {
    "up": ("lifecycle", "The stack"),
    "down": ("lifecycle", "The stack"),
    "clean": ("lifecycle", "The stack"),
    "status": ("inspect", "The stack"),
    "env": ("inspect", "For other tools"),
    "token": ("token", "For other tools"),
    "sbom": ("sbom", "For other tools"),
    "logs": ("inspect", "The stack"),
    "load": ("load", "The real input"),
    "demo": ("demo", "The real input"),
    "rebuild": ("rebuild", "Read models"),
    "replay": ("replay", "Read models"),
    "scale": ("processes", "The stack"),
    "rotate": ("processes", "The stack"),
    "topics": ("topics", "Contracts"),
    "audit": ("audit", "Audit"),
    "notebook": ("notebook", "Analytics"),
    "failback": ("site", "Two sites"),
    "analytics": ("analytics", "Analytics"),
    "sql": ("sql", "Analytics"),
    "sites": ("sites", "Two sites"),
    "site": ("site", "Two sites"),
    "failover": ("failover", "Two sites"),
    "drill": ("drill", "Two sites"),
    "spark": ("spark", "Analytics"),
    "parked": ("parked", "Read models"),
    "streams": ("streams", "Read models"),
    "journal": ("acts", "Audit"),
    "contracts": ("contracts", "Contracts"),
}
# As whom a command connects to Kafka (contracts/topics.yaml). The others are about topics, or start sites: admin.
PRINCIPALS = {
    "status": "operator-read",
    "journal": "operator-read",
    "token": "operator-parked",  # may write the journal
    "sites": "operator-failover",  # `alone` writes the site's control records
    "parked": "operator-parked",
    "streams": "operator-parked",
    "failover": "operator-failover",
}
HELP = """Daybook, an example shop with event sourcing and CQRS on Kafka.

Start with `./daybook up`, then `./daybook status`."""

# `eval "$(./daybook env)"` sets these for one stack; another stack or site must not use them
STORES = ("DAYBOOK_KAFKA", "DAYBOOK_DATABASE_URL")


class Commands(TyperGroup):
    """All commands, each imported when it is invoked. An expected error is one line and exit code 1."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, name: str) -> Any:
        """A command as `--help` lists it."""
        if name not in COMMANDS:
            return super().get_command(ctx, name)
        return TyperCommand(name, help=summary(name), rich_help_panel=COMMANDS[name][1])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, implementation(name) if name in COMMANDS else listed, rest

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses a line break outside a query: a message that repeats what was typed stays one line."""
        if "sql" not in args and any("\n" in argument for argument in args):
            fail("an argument has a line break: write it in one line")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DaybookError as error:
            fail(str(error))


def summary(name: str) -> str:
    """The first paragraph of a command's help, from its source: all files together take two seconds to import.

    It is the docstring of the function with the command's name, or the `help` of the group, `app` or `<name>_app`.
    """
    for node in ast.parse(Path(__file__).with_name(f"{COMMANDS[name][0]}.py").read_text("utf-8")).body:
        match node:
            case ast.FunctionDef(name=function) if function.removesuffix("_command") == name:
                return (ast.get_docstring(node) or "").partition("\n\n")[0]
            case ast.Assign([ast.Name(target)], ast.Call(keywords=options)) if target in (
                "app",
                f"{name}_app",
            ):
                for option in options:
                    if option.arg == "help" and isinstance(option.value, ast.Constant):
                        return str(option.value.value)
    return ""


def implementation(name: str) -> Any:
    """The command or group itself, from its file."""
    app = import_module(f"infra.cli.{COMMANDS[name][0]}").app
    own = {info.name or getattr(info.callback, "__name__", "") for info in app.registered_commands}
    own |= {info.name for info in app.registered_groups}
    cli = typer.Typer()
    cli.add_typer(app, name=None if name in own else name)
    return typer.main.get_group(cli).commands[name]


def command() -> typer.Typer:
    """The command `daybook`."""
    cli = typer.Typer(
        name="daybook",
        cls=Commands,
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_show_locals=False,
    )
    cli.callback()(chosen)
    return cli


def chosen(
    context: typer.Context,
    site: Annotated[
        str, typer.Option("--site", metavar="home|away", help="Act on one site of a stack with two.")
    ] = "",
    stack: Annotated[
        Literal["embedded", "compose"], typer.Option(help="Run as processes or as containers.")
    ] = "embedded",
) -> None:
    # No docstring: typer would show it in place of the help above.
    if "--help" not in sys.argv:
        require_sound_settings()
    _connect_as(PRINCIPALS.get(context.invoked_subcommand or "", "admin"))
    if stack == "compose":
        _in_containers(context.invoked_subcommand or "", site)
    elif site:
        _at_site(site)


def _connect_as(principal: str) -> None:
    """Also where `./daybook env` has set the address for everybody."""
    os.environ.setdefault("DAYBOOK_PRINCIPAL", principal)
    if address := os.environ.get("DAYBOOK_KAFKA"):
        os.environ["DAYBOOK_KAFKA"] = sibling(address, os.environ["DAYBOOK_PRINCIPAL"])


def _in_containers(command: str, site: str) -> None:
    # Imported here and below, because the other commands do not need them.
    from infra.cli import in_containers
    from infra.stack.compose.engine import compose_home

    if site or command in in_containers.NOT_HERE:
        fail(f"{'--site' if site else command} works only on the embedded stack: omit --stack compose")
    for store in STORES:
        os.environ.pop(store, None)
    home = compose_home(StackSettings().home)
    if not home.exists() and command not in in_containers.BEFORE_THE_FIRST_START:
        fail("the shop has never run in containers here: `./daybook --stack compose up` starts it")
    os.environ |= {"DAYBOOK_STACK": "compose", "DAYBOOK_HOME": str(home)}


def _at_site(name: str) -> None:
    from infra.cli.lifecycle import ONE_SITE
    from infra.stack.site import AWAY, HOME, sites_of

    sites = sites_of(StackSettings())
    if name not in sites:
        fail(f"there is no site {name}: `./daybook up --sites 2` creates {AWAY} beside {HOME}")
    own = sites[name].settings
    for store in STORES:
        os.environ.pop(store, None)
    os.environ |= {
        "DAYBOOK_HOME": str(own.home),
        "DAYBOOK_PORT_BASE": str(own.port_base),
        "DAYBOOK_SITE": own.site,
        ONE_SITE: "1",
    }


def main() -> None:
    """Leaves the threads of `Impatient` behind: in one that still waits, Python's own end would abort the process."""
    try:
        command()(prog_name="daybook")
    except SystemExit as end:
        if isinstance(end.code, int) and any(own.name == "impatient" for own in threading.enumerate()):
            sys.stdout.flush()
            os._exit(end.code)
        raise


_MUST_BE = {
    "port_base": f"a whole number from {LOWEST_BASE} to {HIGHEST_BASE}",
    "site": "home or away",
    "stack": "embedded or compose",
}


def require_sound_settings() -> None:
    """Leave with exit code 1 where DAYBOOK_HOME, PORT_BASE, SITE or STACK is nothing to begin with."""
    try:
        home = StackSettings().home
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        must_be = _MUST_BE.get(name, first["msg"])
        fail(f"DAYBOOK_{name.upper()} is {first['input']!r}: it must be {must_be}")
    if not _can_be_made(home.absolute()):
        fail(f"DAYBOOK_HOME is '{home}': it must be a folder that you can write to or create")


def _can_be_made(home: Path) -> bool:
    """Whether the nearest existing folder on its path allows it. It is not created: some commands need none."""
    nearest = next(folder for folder in (home, *home.parents) if os.path.lexists(folder))
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
