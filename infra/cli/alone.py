"""`daybook sites alone`: lets the active site write while the other one is silent."""

from typing import Annotated

import typer

from infra.base.settings import StackSettings
from infra.cli.acts import Why, recorded
from infra.cli.output import fail, notes
from infra.dr.plan import both_sites, control_at
from infra.log.control import lift_hold, write_alone

RECORDED = (
    "{site} writes without proof that it was not replaced, until the sites see each other again. If {other} is active "
    "too, what {site} acknowledges from now on is lost to {other}."
)


def alone(
    site: Annotated[str, typer.Argument(metavar="home|away", help="The active site.")], why: Why = ""
) -> None:
    """Let the active site write although the other one is silent: you know that it is not active."""
    sites = both_sites(StackSettings())
    if site not in sites:
        fail(f"there is no site {site}")
    own, other = sites[site], next(other for name, other in sites.items() if name != site)
    control = control_at(own.bootstrap)
    if control is None or control.role.role != "active":
        fail(f"{site} is not active" if control else f"{site} does not respond")
    if control_at(other.link) is not None:
        fail(f"{site} sees {other.name}: it proves itself, and nothing needs to be recorded")
    with recorded("sites alone", site, why, own.bootstrap):
        write_alone(own.bootstrap, control.role.epoch)
        if control.held == "unproven":
            lift_hold(own.bootstrap)
    notes.print(RECORDED.format(site=site, other=other.name))
