"""NodeNUMAResource: exclusive CPUs for pods, and alignment of all that a pod requests on the same NUMA nodes."""
