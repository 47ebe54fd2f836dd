"""Machines for those that have quota: what `provision` does."""
