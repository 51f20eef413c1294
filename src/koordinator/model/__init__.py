"""Algorithms that two programs share: pure functions over wire types and integers."""
