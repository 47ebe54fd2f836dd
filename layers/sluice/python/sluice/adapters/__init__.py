"""Ports filled with real technology: one outside thing per module."""
