"""The checker of the raw log: what must hold, recomputed without the domain's own code."""

from tests.checker.evidence import Acknowledged, Evidence, Recorded, read_evidence
from tests.checker.invariants import Violation, check

__all__ = ["Acknowledged", "Evidence", "Recorded", "Violation", "check", "read_evidence"]
