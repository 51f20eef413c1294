"""Admission of pods: how they are mutated, and the rules that they must obey."""
