"""NodeMetric and NodeSLO: one object for each node that tells its agent what to measure and what to enforce."""
