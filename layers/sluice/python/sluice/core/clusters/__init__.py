"""Clusters and their machines: what they show, how much to buy, where to place."""
