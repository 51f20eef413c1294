"""Benchmarks: each runs alone, prints one JSON line, and can run a rival in the same run."""
