"""Admission of nodes and of what they report."""
