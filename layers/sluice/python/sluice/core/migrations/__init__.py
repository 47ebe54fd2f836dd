"""Carrying a running workload away from a dying machine: notices, checkpoints, migration."""
