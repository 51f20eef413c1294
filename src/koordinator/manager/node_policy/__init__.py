"""NodeMetric and NodeSLO: one object of each per node, which configure what koordlet measures and enforces."""
