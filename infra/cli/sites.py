"""`daybook sites`: the state of both sites; `sites cut` and `sites heal` change the link between them."""

from collections.abc import Mapping
from typing import Annotated

import typer

from analytics.terminal import Table
from infra.base.settings import StackSettings
from infra.cli.acts import Why, only_command, recorded
from infra.cli.lifecycle import client_settings
from infra.cli.output import AsJson, fail, notes, print_json, results
from infra.dr.overview import MirrorView, SitesView, SiteView, overview
from infra.dr.plan import both_sites, control_at
from infra.log.control import lift_hold, write_alone
from infra.stack.link import LinkState, set_links
from infra.stack.platform import platform_of
from infra.stack.site import Site, as_started, home_settings

app = typer.Typer(invoke_without_command=True)


@app.callback()
def sites(context: typer.Context, as_json: AsJson = False) -> None:
    """Show roles, epoch, the mirror's lag, read models and standbys of both sites, in about two seconds."""
    if context.invoked_subcommand:
        return
    with notes.status("Contacting both sites"):
        view = overview(_both())
    if as_json:
        print_json(view)
        return
    results.print(_table(view))
    results.print(_mirror(view.mirror))
    if view.incident:
        results.print(view.incident)


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
    home = home_settings(StackSettings())
    # A running stack keeps the ports with which it was started.
    pair = platform_of(as_started(home) or home).sites()
    if len(pair) < 2 and home.stack == "compose":
        fail("there are not two sites: `COMPOSE_PROFILES=sites ./daybook --stack compose up` makes a second")
    if len(pair) < 2:
        fail("there is one site: `./daybook up --sites 2` creates a second one")
    return pair


def _table(view: SitesView) -> Table:
    table = Table("", *(site.name for site in view.sites))
    rows = {
        "role": lambda site: site.role or _silent(site, "broker", "silent" if site.up else "down"),
        "epoch": lambda site: str(site.epoch or "-"),
        "hold": lambda site: site.write_block or "none",
        "link": lambda site: site.link,
        # a mirror that is ready copies; whether the site is, the read models show
        "mirror into it": lambda site: "copies" if site.mirror == "ready" else site.mirror,
        "canary": lambda site: (
            _silent(site, "guard", "-") if site.canary_seconds is None else f"{site.canary_seconds:.3f} s"
        ),
        "read models": _read_models,
    }
    for name, cell in rows.items():
        table.add_row(name, *(cell(site) for site in view.sites))
    for worker in dict.fromkeys(name for site in view.sites for name in site.workers):
        table.add_row(worker, *(_worker(site, worker) for site in view.sites))
    return table


def _silent(site: SiteView, process: str, otherwise: str) -> str:
    since = site.silent_since.get(process)
    return f"silent since {since}" if since else otherwise


def _worker(site: SiteView, name: str) -> str:
    state = site.workers.get(name, "-")
    return _silent(site, name, state) if state == "silent" else state


def _read_models(site: SiteView) -> str:
    """How far they are behind the log of the active site, not only behind their own."""
    if not site.read_models:
        return _silent(site, "query-api", "-")
    if site.behind is None:
        return "lag unknown"
    if not site.behind:
        return f"{len(site.read_models)} up to date"
    behind = [model for model in site.read_models.values() if model.events]
    if site.role != "active" or not behind:
        return f"{site.behind:,} events behind the active site"
    slowest = max(behind, key=lambda model: model.seconds or 0.0)
    return f"{slowest.events} events, {slowest.seconds or 0.0:.1f} s behind"


def _mirror(mirror: MirrorView | None) -> str:
    if mirror is None:
        return "No mirror: both sites claim to be active."
    way = f"Mirror {mirror.source} to {mirror.target}:"
    if mirror.events is None or mirror.seconds is None:
        return f"{way} lag unknown, {mirror.reason}"
    if not mirror.events:
        return f"{way} caught up, exactly."
    most = "" if mirror.exact else "at most "
    return f"{way} {most}{mirror.events:,} events behind, the oldest {mirror.seconds:.2f} s old."


RECORDED = (
    "{site} writes without proof that it was not replaced, until the sites see each other again. If {other} is active "
    "too, what {site} acknowledges from now on is lost to {other}."
)


@app.command()
def alone(
    site: Annotated[str, typer.Argument(metavar="home|away", help="The active site.")], why: Why = ""
) -> None:
    """Let the active site write although the other one is silent: you know that it is not active."""
    settings = client_settings()
    sites = both_sites(settings)
    if site not in sites:
        fail(f"there is no site {site}: home or away")
    own, other = sites[site], next(other for name, other in sites.items() if name != site)
    control = control_at(own.bootstrap)
    if control is None or control.role.role != "active":
        fail(f"{site} is not active" if control else f"{site} does not respond")
    if control_at(other.link) is not None:
        fail(f"{site} sees {other.name}: it proves itself, and nothing needs to be recorded")
    with only_command(settings, "sites alone"), recorded("sites alone", site, why, own.bootstrap):
        write_alone(own.bootstrap, control.role.epoch)
        if control.held == "unproven":
            lift_hold(own.bootstrap)
    notes.print(RECORDED.format(site=site, other=other.name))
