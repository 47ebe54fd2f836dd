"""Decisions: pure Python; no clock, no randomness, no I/O."""
