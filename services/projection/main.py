"""`python -m services.projection.main project|query|migrate`"""

import asyncio
import os
import signal
import sys

import structlog
import uvloop

from services.edge.app import health_application
from services.edge.json_logs import configure_logging
from services.edge.server import health_listener, serve_api
from services.kernel.exit_codes import EXIT_FAILED, EXIT_REBUILT, EXIT_STOPPED, EXIT_USAGE
from services.kernel.threads import end_with_threads
from services.projection.engine.database import pool
from services.projection.engine.read_model import OtherCode
from services.projection.engine.roles import open_database
from services.projection.engine.settings import MigrationSettings, ProjectionSettings, QuerySettings
from services.projection.read_models import READ_MODELS

log = structlog.get_logger(__name__)


async def project(settings: ProjectionSettings) -> None:
    """Serves health and metrics beside the projection, until a signal or a fatal error."""
    from services.projection.engine.projection import (  # only the projection needs Faust, which is slow to import
        Health,
        run,
    )

    health, stop = Health(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    app = health_application(health.not_ready)
    async with health_listener(app, settings.health_host, settings.health_port):
        await run(settings, stop, health)


def _project(settings: ProjectionSettings) -> int:
    configure_logging("projection", settings.log_level)
    end_with_threads()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(project(settings))
    except OtherCode as error:
        log.error("rebuilt", reason=str(error))
        sys.stdout.flush()
        os._exit(EXIT_REBUILT)
    except Exception:
        log.exception("the projection stopped")
        sys.stdout.flush()
        os._exit(EXIT_FAILED)  # a thread of a broken source must not keep the process alive
    return EXIT_STOPPED


def _query(settings: QuerySettings) -> int:
    from services.projection.api import query_app
    from services.projection.engine.visibility import TABLES_CHANGED

    configure_logging("query-api", settings.log_level)
    clients = settings.http_host, settings.http_port
    exit_code = serve_api(query_app(settings), clients, (settings.health_host, settings.health_port))
    if TABLES_CHANGED.is_set():
        return EXIT_REBUILT
    return EXIT_STOPPED if exit_code == EXIT_STOPPED else EXIT_FAILED


async def _migrate(settings: MigrationSettings) -> int:
    """Once, before the other processes start, which have fewer rights."""
    configure_logging("migrations", settings.log_level)
    async with pool(settings.database_url, 1) as connections, connections.acquire() as connection:
        passwords = {role: password.get_secret_value() for role, password in settings.role_passwords.items()}
        log.info("migrated", numbers=await open_database(connection, passwords, READ_MODELS))
    return EXIT_STOPPED


def main(arguments: list[str]) -> int:
    match arguments:
        case ["project"]:
            return _project(ProjectionSettings())
        case ["query"]:
            return _query(QuerySettings())
        case ["migrate"]:
            return asyncio.run(_migrate(MigrationSettings()))
        case _:
            print(__doc__, file=sys.stderr)
            return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
