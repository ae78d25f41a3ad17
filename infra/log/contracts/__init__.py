"""Keeping the contracts: generated classes, locked ids, compatibility."""
