"""The snapshots of the write APIs, anew: `python -m tests.contract.write_openapi_snapshots`."""

import json

from services.inventory import openapi as inventory
from services.order import openapi as order
from tests.contract.test_write_openapi import SNAPSHOTS

if __name__ == "__main__":
    SNAPSHOTS.mkdir(exist_ok=True)
    for name, described in (("order", order.described), ("inventory", inventory.described)):
        (SNAPSHOTS / f"{name}.json").write_text(json.dumps(described(), indent=2) + "\n")
