"""The shop with read models of another folder: `python -m … project|query|migrate|<command of daybook>`.

DAYBOOK_TEST_FOLDER contains their folders; one with the name of a read model of the shop replaces it.
DAYBOOK_TEST_REGISTER names one to register, which reads `order.events`.
DAYBOOK_TEST_STATEMENTS is the number of statements after which the process kills itself.
"""

import itertools
import os
import signal
import sys
from typing import Any

from asyncpg import Connection

import services.projection


def take(folder: str, registered: str) -> None:
    services.projection.__path__.insert(0, folder)
    from services.projection import read_models  # after the path is set: it imports the folders

    if registered:
        vars(read_models)["READ_MODELS"] += (read_models.read_model(registered, "order.events"),)


def die_after(statements: int) -> None:
    execute, number = Connection.execute, itertools.count()

    async def executing(self: Any, *arguments: Any, **named: Any) -> Any:
        if next(number) >= statements:
            os.kill(os.getpid(), signal.SIGKILL)
        return await execute(self, *arguments, **named)

    Connection.execute = executing  # type: ignore[method-assign]


if __name__ == "__main__":
    if number := os.environ.get("DAYBOOK_TEST_STATEMENTS"):
        die_after(int(number))
    take(os.environ["DAYBOOK_TEST_FOLDER"], os.environ.get("DAYBOOK_TEST_REGISTER", ""))
    if sys.argv[1] in ("project", "query", "migrate"):
        from services.projection.main import main

        sys.exit(main(sys.argv[1:]))
    from infra.cli.main import main as daybook

    daybook()
