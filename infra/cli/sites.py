"""`daybook sites`: how the two stand; `sites cut` and `sites heal`: the way between them, for drills."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
import typer

from analytics.terminal import Table
from infra.base.journal import StackJournal
from infra.base.settings import StackSettings
from infra.cli.in_containers import failing
from infra.cli.output import fail, notes, results
from infra.dr.overview import MirrorView, SitesView, SiteView, overview
from infra.stack.link import LinkState, set_links
from infra.stack.platform import platform_of
from infra.stack.site import Site, home_settings

app = typer.Typer(invoke_without_command=True)


@app.callback()
def sites(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="For other tools.")] = False,
) -> None:
    """Show roles, epoch, the mirror's exact lag, read models and standbys of both sites."""
    if context.invoked_subcommand:
        return
    with notes.status("Contacting both sites"):
        view = overview(_both())
    if as_json:
        results.print(msgspec.json.encode(view).decode())
        return
    results.print(_table(view))
    results.print(_mirror(view.mirror))


@app.command()
def cut() -> None:
    """Disconnect the two sites: mirrors and guards cannot reach the other side."""
    set_links(_both().values(), LinkState(cut=True))
    notes.print(f"Disconnected. `{StackSettings().typed} sites heal` reconnects them.")


@app.command()
def heal(
    delay: Annotated[int, typer.Option(min=0, metavar="MS", help="Delay every byte by this long.")] = 0,
) -> None:
    """Reconnect the two sites."""
    set_links(_both().values(), LinkState(delay_ms=delay))
    notes.print(
        "Reconnected." if not delay else f"Reconnected, with a delay of {delay} ms in each direction."
    )


def _both() -> Mapping[str, Site]:
    settings = StackSettings()
    if settings.stack == "compose":
        with failing():
            found = platform_of(settings).sites()
        if len(found) < 2:
            fail(
                "there are not two sites: `COMPOSE_PROFILES=sites ./daybook --stack compose up` makes a second"
            )
        return found
    home = home_settings(settings)
    # The ports of a running stack were chosen when it started.
    state = StackJournal(home.home).read() if home.home.exists() else None
    if state is not None and StackJournal(home.home).supervised():
        home = StackSettings(home=home.home, port_base=state.port_base, site="home")
    found = platform_of(home).sites()
    if len(found) < 2:
        fail("there is one site: `./daybook up --sites 2` creates a second one")
    return found


def _table(view: SitesView) -> Table:
    table = Table("", *(site.name for site in view.sites))
    rows = {
        "role": lambda site: site.role or ("silent" if site.up else "down"),
        "epoch": lambda site: str(site.epoch or "-"),
        "hold": lambda site: site.hold or "none",
        "link": lambda site: site.link,
        "mirror into it": lambda site: site.mirror,
        "canary": lambda site: "-" if site.canary_seconds is None else f"{site.canary_seconds:.3f} s",
        "read models": _read_models,
    }
    for name, cell in rows.items():
        table.add_row(name, *(cell(site) for site in view.sites))
    for worker in view.sites[0].workers:
        table.add_row(worker, *(site.workers[worker] for site in view.sites))
    return table


def _read_models(site: SiteView) -> str:
    """The one that is furthest behind."""
    known = {
        name: (view.events, view.seconds)
        for name, view in site.read_models.items()
        if view.events is not None and view.seconds is not None
    }
    if not known:
        return "lag unknown" if site.read_models else "-"
    name, (events, seconds) = max(known.items(), key=lambda each: each[1])
    return f"{name}: {events} events, {seconds:.1f} s behind" if events else f"{len(known)} up to date"


def _mirror(mirror: MirrorView | None) -> str:
    if mirror is None:
        return "No mirror: both sites claim to be active."
    way = f"Mirror {mirror.source} to {mirror.target}:"
    if mirror.events is None or mirror.seconds is None:
        return f"{way} lag unknown, {mirror.reason}"
    if not mirror.events:
        return f"{way} caught up, exactly."
    return f"{way} {mirror.events} events behind, the oldest {mirror.seconds:.2f} s old."
