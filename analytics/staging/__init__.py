"""Thin renames and types of the replayed events; no business."""
