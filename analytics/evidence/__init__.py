"""The accounts that the audit compares: Spark's fold, the read models, the expectation."""
