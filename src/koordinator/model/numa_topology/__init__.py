"""Alignment of a pod's resources with NUMA nodes: topology hints, and how they are merged."""
