"""The demo: `python -m local.demo`."""
