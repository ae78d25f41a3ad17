"""The checker of the raw log: its invariants, computed without the domain's own code."""

from infra.lab.checker.evidence import (
    Acknowledged,
    Evidence,
    Recorded,
    Sent,
    read_evidence,
    read_seen,
    read_sent,
)
from infra.lab.checker.invariants import Violation, check

__all__ = [
    "Acknowledged",
    "Evidence",
    "Recorded",
    "Sent",
    "Violation",
    "check",
    "read_evidence",
    "read_seen",
    "read_sent",
]
