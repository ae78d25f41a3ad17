"""One file, one table; the grain is in the docstring."""
