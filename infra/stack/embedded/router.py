"""The router of a stack with two sites: `python -m infra.stack.embedded.router` supervises it.

It belongs to neither site, and survives the loss of both: it has its own supervisor and journal, in the folder of home.
"""

import os
import sys

import msgspec

from infra.base.journal import StackJournal
from infra.base.ports import HOST
from infra.base.settings import StackSettings
from infra.stack.embedded.child import Program
from infra.stack.embedded.stack import Member
from infra.stack.embedded.supervisor import supervise
from infra.stack.shop import ROUTED, ROUTER, http_ready
from infra.stack.site import home_settings, sites_of

READY_SECONDS = 60.0


def router_journal(settings: StackSettings) -> StackJournal:
    """The journal of the router's supervisor, given the settings of either site."""
    return StackJournal(home_settings(settings).home / ROUTER)


def router_member(settings: StackSettings) -> Member:
    """The router; `settings` are home's."""
    return Member(
        ROUTER,
        (settings.port(ROUTER), *map(settings.port, ROUTED.values())),
        lambda: Program(ROUTER, (sys.executable, "-m", "infra.router.router"), _environment(settings)),
        # it also responds while no site is active
        lambda: http_ready(settings.health_url(ROUTER), "live"),
        READY_SECONDS,
        alive=lambda: http_ready(settings.health_url(ROUTER), "live"),
    )


def _environment(settings: StackSettings) -> dict[str, str]:
    sites = sites_of(settings)
    routes = {
        api: {
            "port": settings.port(name),
            "targets": {site: f"{HOST}:{own.settings.port(api)}" for site, own in sites.items()},
            "reads": api == "query-api",
        }
        for api, name in ROUTED.items()
    }
    own = {
        "DAYBOOK_ROUTER_SITES": {site: own.settings.kafka_as(ROUTER) for site, own in sites.items()},
        "DAYBOOK_ROUTER_ROUTES": routes,
    }
    return {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "DAYBOOK_HTTP_HOST": HOST,
        "DAYBOOK_HEALTH_HOST": HOST,
        "DAYBOOK_HEALTH_PORT": str(settings.health_port(ROUTER)),
        **{name: msgspec.json.encode(value).decode() for name, value in own.items()},
    }


if __name__ == "__main__":
    home = home_settings(StackSettings())
    sys.exit(supervise(home, router_journal(home), [[router_member(home)]]))
