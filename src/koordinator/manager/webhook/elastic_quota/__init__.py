"""Admission of elastic quotas: in a tree, no child is guaranteed more than its parent has."""
