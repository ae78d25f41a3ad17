"""`daybook --stack compose up`, `down`, `clean`, `status`, `logs`: the same commands for containers."""

import shutil
from pathlib import Path

import typer

from analytics.terminal import Table
from infra.base.settings import INSECURE, StackSettings
from infra.cli.output import fail, notes, results
from infra.log.control import SiteSilent, read_site
from infra.log.streams import stream_lines
from infra.stack.compose.engine import (
    EngineFailed,
    active_services,
    await_fine,
    compose,
    containers,
    keep_two_sites,
    not_fine,
)
from infra.stack.embedded.kafka import kept_cluster_id
from infra.stack.shop import database_url
from infra.stack.storage import Space

# All others need the secrets, which the first start creates; a drill starts its own shop.
BEFORE_THE_FIRST_START = ("up", "down", "clean", "demo", "drill", "contracts")
# These work only with the processes of the embedded stack.
NOT_HERE = ("spark", "notebook")


def up(settings: StackSettings, sites: int, brokers: int, *, insecure: bool) -> None:
    """Build the images, start all containers and wait until they are healthy. COMPOSE_PROFILES adds profiles."""
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if brokers > settings.brokers:
        if (settings.home / "containers").exists():
            fail(
                f"this shop began without --brokers 3: `{settings.typed} clean` removes it, with every order"
            )
        kept_cluster_id(settings.home)
    decide_security(settings, insecure=insecure)
    keep_two_sites(settings, sites)
    before = {own.name: (own.started, own.state) for own in containers(settings)}
    try:
        compose(settings, "up", "--detach", "--build", "--quiet-pull")
    except EngineFailed:
        now = [own for own in containers(settings) if (own.started, own.state) != before.get(own.name)]
        if ended := [own for own in now if own.state == "exited" and own.exit_code]:
            raise not_fine(ended) from None
        raise
    await_fine(settings, active_services(settings))


def decide_security(settings: StackSettings, *, insecure: bool) -> None:
    """Whether Kafka is secured, from this start on. Ends the command where it runs the other way."""
    if insecure != settings.secured:
        return
    if any(container.state == "running" for container in containers(settings)):
        fail(f"the shop runs {'secured' if insecure else 'with --insecure'}: `{settings.typed} down` first")
    mark = settings.home / INSECURE
    if insecure:
        mark.touch()
    else:
        mark.unlink()


def down(settings: StackSettings) -> None:
    """Stop all, of every profile; the volumes stay."""
    compose(settings, "--profile", "*", "down")
    notes.print("Stopped. The volumes are kept; `./daybook --stack compose clean` removes them.")


def clean(settings: StackSettings) -> None:
    """Stop all and remove volumes and secrets."""
    compose(settings, "--profile", "*", "down", "--volumes")
    shutil.rmtree(settings.home, ignore_errors=True)
    notes.print(f"Removed the volumes and {settings.home}.")


def status(settings: StackSettings) -> None:
    """Every container. Exit code 1 unless all are healthy, steps done, and the disk has room."""
    existing = containers(settings)
    if not existing:
        fail("there is no container: `./daybook --stack compose up` starts them")
    table = Table("container", "state", "health", "addresses")
    for container in existing:
        state = f"ended with {container.exit_code}" if container.state == "exited" else container.state
        table.add_row(container.service, state, container.health or "-", " ".join(container.addresses))
    results.print(table)
    storage = _storage(settings)
    if storage:
        results.print(f"storage: {storage}")
    for line in stream_lines(database_url(settings), settings.typed):
        results.print(line)
    if storage or not all(container.fine for container in existing):
        raise typer.Exit(1)


def _storage(settings: StackSettings) -> str:
    """The storage block that the probe beside the broker wrote, in words; empty without one. Also a reason why it is
    unknown: a broker that does not respond, or refuses to show it."""
    try:
        block = read_site(settings.kafka).storage
    except SiteSilent as silent:
        return f"unknown, {silent}"
    if block is None:
        return ""
    had = Space(Path(block.folder), block.free_bytes)
    return f"{had} when writes were stopped: they are refused with 507 storage_full until there is room"


def logs(settings: StackSettings, name: str, *, follow: bool, lines: int) -> None:
    """The end of a container's log, or of all."""
    options = ["--tail", str(lines), *(["--follow"] if follow else []), *([name] if name else [])]
    compose(settings, "logs", *options)
