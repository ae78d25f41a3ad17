"""`daybook --stack compose up`, `down`, `clean`, `status`, `logs`: the same words for containers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from analytics.terminal import Table
from infra.base.settings import StackSettings
from infra.cli.output import fail, notes, results
from infra.log.asking import SiteSilent, ask
from infra.log.stream_counts import stream_lines
from infra.stack.compose.engine import (
    SITES,
    EngineFailed,
    active_services,
    await_fine,
    compose,
    containers,
    keep_two_sites,
    make_secrets,
)
from infra.stack.shop import database_url
from infra.stack.storage import Space

# All others need the secrets, which the first start makes; a drill starts a shop of its own.
BEFORE_THE_FIRST_START = ("up", "down", "clean", "demo", "drill", "contracts")
# These know the embedded stack's processes alone.
NOT_HERE = ("spark", "notebook")


def up(settings: StackSettings, sites: int) -> None:
    """Build the images, start all and wait until it is healthy. COMPOSE_PROFILES adds to it."""
    with failing():
        make_secrets(settings)
        if sites == 2 or SITES in os.environ.get("COMPOSE_PROFILES", "").split(","):
            keep_two_sites(settings)
        compose(settings, "up", "--detach", "--build", "--quiet-pull")
        await_fine(settings, active_services(settings))


def down(settings: StackSettings) -> None:
    """Stop all, of every profile; the volumes stay."""
    with failing():
        compose(settings, "--profile", "*", "down")
    notes.print("Stopped. The volumes are kept; `./daybook --stack compose clean` removes them.")


def clean(settings: StackSettings) -> None:
    """Stop all and remove volumes and secrets."""
    with failing():
        compose(settings, "--profile", "*", "down", "--volumes")
    shutil.rmtree(settings.home, ignore_errors=True)
    notes.print(f"Removed the volumes and {settings.home}.")


def status(settings: StackSettings) -> None:
    """Every container. Exit code 1 unless all are healthy, steps done, and the disk has room."""
    with failing():
        found = containers(settings)
    if not found:
        fail("there is no container: `./daybook --stack compose up` starts them")
    table = Table("container", "state", "health", "addresses")
    for one in found:
        state = f"ended with {one.exit_code}" if one.state == "exited" else one.state
        table.add_row(one.service, state, one.health or "-", " ".join(one.addresses))
    results.print(table)
    storage = _storage(settings)
    if storage:
        results.print(f"storage: {storage}")
    for line in stream_lines(database_url(settings), settings.typed):
        results.print(line)
    if storage or not all(one.fine for one in found):
        raise typer.Exit(1)


def _storage(settings: StackSettings) -> str:
    """What the probe beside the broker said when the disk was nearly full; empty where it is not."""
    try:
        block = ask(settings.kafka).storage
    except SiteSilent:
        return ""
    if block is None:
        return ""
    had = Space(Path(block.folder), block.free_bytes)
    return f"{had} when writes were stopped: they are refused with 507 storage_full until there is room"


def logs(settings: StackSettings, name: str, *, follow: bool, lines: int) -> None:
    """The end of a container's log, or of all."""
    options = ["--tail", str(lines), *(["--follow"] if follow else []), *([name] if name else [])]
    with failing():
        compose(settings, "logs", *options)


@contextmanager
def failing() -> Iterator[None]:
    """Leave with exit code 1 and one line where Docker does not do it."""
    try:
        yield
    except EngineFailed as reason:
        fail(str(reason))
