"""Parts of the shop in processes of their own, so that a benchmark can start and stop their work."""
