"""The real adapters on an AWS that has a bad day."""
