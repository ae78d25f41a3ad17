"""The peers of the shop: the usual ways to do the same, written as well as we can."""
