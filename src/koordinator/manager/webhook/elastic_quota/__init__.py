"""Admission of elastic quotas: a tree in which no child is guaranteed more than its parent has."""
