"""A report of a lake: its size, ends and schemas."""

from pathlib import Path

from analytics.lake.manifest import NO_SCHEMA, Manifest, fingerprint
from contracts.lock import Lock, load_lock


def lake_report(lake: Manifest, folder: Path) -> str:
    """How far it is complete, by partition, and which events it holds, by type and schema version."""
    lock = load_lock()
    rows, size = sum(part.rows for part in lake.parts), sum(part.bytes for part in lake.parts)
    same = "the same as now" if lake.contracts == fingerprint(lock) else "others than now"
    lines = [f"{folder}: {rows:,} records, {size / 1e6:,.1f} MB in {len(lake.parts)} parts"]
    lines += [
        f"complete to {topic}/{number}/{offset}"
        for topic, partitions in sorted(lake.ends.items())
        for number, offset in sorted(partitions.items())
    ]
    lines.append(f"written with contracts {lake.contracts[:12]}, {same}")
    lines += sorted(_counted(schema_id, rows, lock) for schema_id, rows in lake.schemas.items())
    return "\n".join(lines)


def _counted(schema_id: str, rows: int, lock: Lock) -> str:
    if schema_id == NO_SCHEMA:
        return f"{rows:>12,} without a schema id"
    try:
        name, version = lock.type_of(int(schema_id)), lock.version(int(schema_id))
    except KeyError:
        return f"{rows:>12,} of the unknown schema id {schema_id}"
    return f"{rows:>12,} {name} version {version}"
