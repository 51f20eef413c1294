"""The one picture of the pods of this node: what the kubelet lists, what the kernel has of it, and what was granted."""
