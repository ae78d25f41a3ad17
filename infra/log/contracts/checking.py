"""Everything that `daybook contracts check` looks at."""

from __future__ import annotations

from pathlib import Path

from contracts.lock import ROOT, read_lock
from infra.log.contracts import codegen, locking
from infra.log.contracts.compatibility import incompatibilities
from infra.log.contracts.schemas import references, schema_files, schemas_of_topics


def problems(root: Path = ROOT) -> list[str]:
    """What is wrong with the contracts, in words. Raises ContractError on unusable files."""
    lock = read_lock(root / locking.LOCK_FILE)
    unknown = list(references(schema_files(root), schemas_of_topics(root)))
    if unknown:
        return unknown
    changed = list(locking.broken(lock, root))
    if changed:
        return changed
    return [
        *codegen.stale(root),
        *locking.stale(lock, root),
        *incompatibilities(locking.extended(lock, root)),
    ]
