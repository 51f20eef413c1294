"""Which CPUs of a node a pod is bound to."""
