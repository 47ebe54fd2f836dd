"""Queueing semantics: quota, flavors, preemption, fairness, the admission pass; no records."""
