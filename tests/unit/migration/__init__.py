"""Moves of workloads off dying machines."""
