"""Admission of pods: what is changed in them, and what they may not be."""
