"""Gather, decide, apply: one use case per verb, over ports."""
