"""The snapshots of the three APIs, anew: `python -m tests.contract.openapi_snapshots`."""

import json

from tests.contract.test_openapi import APPS, SNAPSHOTS, document

if __name__ == "__main__":
    SNAPSHOTS.mkdir(exist_ok=True)
    for name in APPS:
        (SNAPSHOTS / f"{name}.json").write_text(json.dumps(document(name), indent=2) + "\n")
