"""Unit tests: no network, no processes."""
