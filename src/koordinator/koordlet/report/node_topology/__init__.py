"""What is reported of a node's CPUs and NUMA nodes: who may run where, and what each NUMA node has."""
