"""What the shop is measured against: the usual ways to do the same, written as well as we can."""
