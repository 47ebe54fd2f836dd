"""Gather, decide, apply: one use case per verb, over ports.

Beside the folders: the api's routes, who calls and what is refused, and what all of them share.
"""
