"""Tests of the api: its handler and use cases on in-memory ports."""
