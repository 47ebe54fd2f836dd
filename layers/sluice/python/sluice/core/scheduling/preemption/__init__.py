"""Preemption: the smallest set of running workloads that must yield to a waiting one.

Victims that were chosen earlier and whose pods still run are no candidates: their quota already
counts as free in the tree that is searched.
"""
