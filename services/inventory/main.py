"""`python -m services.inventory.main api|worker`"""

from __future__ import annotations

import argparse

from services.edge.json_logs import configure_logging
from services.inventory.settings import StockApiSettings, StockWorkerSettings


def main() -> int:
    """The process's exit code. Each part is imported alone: an API has no use for a worker's code."""
    parser = argparse.ArgumentParser(prog="python -m services.inventory.main")
    parser.add_argument("part", choices=["api", "worker"], help="the HTTP side, or the owner of a slot")
    match parser.parse_args().part:
        case "api":
            return _api()
        case _:
            return _worker()


def _api() -> int:
    from services.edge.server import serve
    from services.inventory.api import create

    settings = StockApiSettings()  # type: ignore[call-arg] # hash_key comes from the environment
    configure_logging("inventory-api", settings.log_level)
    return serve(create(settings), settings.http_host, settings.http_port)


def _worker() -> int:
    from services.inventory.worker import run

    settings = StockWorkerSettings()
    configure_logging("inventory-worker", settings.log_level)
    return run(settings)


if __name__ == "__main__":
    raise SystemExit(main())
