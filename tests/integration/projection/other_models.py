"""The shop with read models of another folder: `python -m … project|query|<command of daybook>`.

DAYBOOK_TEST_FOLDER holds their folders; one that has the name of a read model of the shop takes its place.
DAYBOOK_TEST_REGISTER names one to register, which reads `order.events`.
"""

import os
import sys

import services.projection
from services.projection import read_models


def take(folder: str, registered: str) -> None:
    services.projection.__path__.insert(0, folder)
    if registered:
        vars(read_models)["READ_MODELS"] += (read_models.read_model(registered, "order.events"),)


if __name__ == "__main__":
    take(os.environ["DAYBOOK_TEST_FOLDER"], os.environ.get("DAYBOOK_TEST_REGISTER", ""))
    if sys.argv[1] in ("project", "query"):
        from services.projection.main import main

        sys.exit(main(sys.argv[1:]))
    from infra.cli import main as daybook

    daybook()
