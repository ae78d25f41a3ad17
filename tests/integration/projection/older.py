"""The projection as it was before an event's schema was locked: `python -m … project`.

DAYBOOK_TEST_WITHOUT is the type that its lock lacks.
"""

import os
import sys

import contracts.lock


def forget(name: str) -> None:
    whole = contracts.lock.load_lock()
    older = contracts.lock.Lock(entry for entry in whole.entries if entry.type != name)
    vars(contracts.lock)["load_lock"] = lambda: older


if __name__ == "__main__":
    forget(os.environ["DAYBOOK_TEST_WITHOUT"])
    from services.projection.main import main

    sys.exit(main(sys.argv[1:]))
