"""NodeNUMAResource: CPUs that a pod has for itself, and everything that it requests from the same NUMA nodes."""
