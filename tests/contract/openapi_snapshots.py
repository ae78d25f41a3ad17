"""The snapshots of the three APIs, anew: `python -m tests.contract.openapi_snapshots`."""

import json

from tests.contract.test_openapi import DOCUMENTS, SNAPSHOTS

if __name__ == "__main__":
    SNAPSHOTS.mkdir(exist_ok=True)
    for name, described in DOCUMENTS.items():
        (SNAPSHOTS / f"{name}.json").write_text(json.dumps(described(), indent=2) + "\n")
