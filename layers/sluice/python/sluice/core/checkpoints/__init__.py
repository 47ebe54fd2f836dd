"""Checkpoint drivers: who saves the work of a pod, what each needs, and what fits the time."""
