"""What the audit lays side by side: Spark's own fold, the read models, what was expected."""
