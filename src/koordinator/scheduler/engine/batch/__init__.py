"""Batch evaluation: filter results and scores of a few dirty nodes for many classes of pods at once."""
