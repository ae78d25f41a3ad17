"""Delta tables by name, read without a JVM."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from deltalake import DeltaTable

Location: TypeAlias = str | Path
"""A folder, or the URI of one, for example `s3a://bucket/lake`. Only Delta's readers and writers open it."""
METADATA = "userMetadata"
"""Where a commit says what its writer knew; Spark names it so."""


def table(folder: Location, name: str) -> DeltaTable | None:
    """None if nothing was written to it yet."""
    path = f"{folder}/{name}"
    return DeltaTable(path) if DeltaTable.is_deltatable(path) else None


def last_commit(delta: DeltaTable) -> tuple[datetime, dict[str, Any]]:
    """When a table was last written by one that says something of it, and what, from JSON. Others, which compact it for
    example, say nothing."""
    entries = delta.history(100)
    entry = next((entry for entry in entries if METADATA in entry), entries[0])
    at = datetime.fromtimestamp(entry["timestamp"] / 1000, UTC)
    return at, msgspec.json.decode(entry.get(METADATA) or "{}")
