"""The checker of the raw log: its invariants, computed without the domain's own code."""
