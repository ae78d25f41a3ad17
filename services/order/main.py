"""`python -m services.order.main api|worker`"""

from __future__ import annotations

import argparse

from services.edge.json_logs import configure_logging
from services.order.settings import OrderApiSettings, OrderWorkerSettings


def main() -> int:
    """The process's exit code. Each part is imported alone: an API has no use for a worker's code."""
    parser = argparse.ArgumentParser(prog="python -m services.order.main")
    parser.add_argument("part", choices=["api", "worker"], help="the HTTP side, or the owner of a slot")
    match parser.parse_args().part:
        case "api":
            return _api()
        case _:
            return _worker()


def _api() -> int:
    from services.edge.server import serve
    from services.order.api import create

    settings = OrderApiSettings()  # type: ignore[call-arg] # hash_key comes from the environment
    configure_logging("order-api", settings.log_level)
    return serve(create(settings), settings.http_host, settings.http_port)


def _worker() -> int:
    from services.order.worker import run

    settings = OrderWorkerSettings()
    configure_logging("order-worker", settings.log_level)
    return run(settings)


if __name__ == "__main__":
    raise SystemExit(main())
