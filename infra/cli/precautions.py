"""What a command does before it changes a site: it asks for the site's name, and runs alone."""

import sys
from contextlib import AbstractContextManager
from typing import Annotated

import typer

from infra.base.settings import StackSettings
from infra.cli.output import fail, notes
from infra.dr.plan import both_sites
from infra.stack.site import home_settings, own_site

Confirmed = Annotated[
    str, typer.Option("--confirm", metavar="SITE", help="The site's name, instead of typing it when asked.")
]


def confirm_site(site: str, consequences: str, confirmed: str) -> None:
    """Say what will happen, and go on only when the operator types the site's name, or gave it beforehand."""
    for line in consequences.splitlines():
        notes.print(line)
    if not confirmed and sys.stdin.isatty():
        confirmed = typer.prompt(f"Type {site} to go on", err=True)
    if confirmed != site:
        fail(f"nothing was changed: add `--confirm {site}` to agree")


def only_command(settings: StackSettings, command: str) -> AbstractContextManager[None]:
    """Nothing else changes the sites meanwhile. Raises OtherCommand, and NotDone where there is only one site."""
    both_sites(settings)
    return own_site(home_settings(settings)).journal.sole_change(command)
