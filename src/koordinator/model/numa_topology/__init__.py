"""Aligning what a pod gets with NUMA nodes: hints, and what they amount to together."""
