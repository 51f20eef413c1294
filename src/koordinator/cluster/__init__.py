"""The embedded cluster: a Kubernetes API that real clients accept, and simulated nodes that join it."""
