"""Interference: which latency-sensitive pods suffer from others on their node, and who the others may be."""
