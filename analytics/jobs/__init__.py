"""Entry points for spark-submit, or `python -m`."""
