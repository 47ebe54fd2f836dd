"""Tests of the `sluice` command against the real api on in-memory ports."""
