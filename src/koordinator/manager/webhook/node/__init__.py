"""Admission of nodes and of their status."""
