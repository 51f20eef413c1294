"""Admission of elastic quotas: a tree in which no child is promised more than its parent has."""
