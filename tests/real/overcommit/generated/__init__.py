"""Clusters made by chance: the same for the same seed."""
