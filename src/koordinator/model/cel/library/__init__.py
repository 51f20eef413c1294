"""The functions of Kubernetes 1.35: those of the language, its extensions, and Kubernetes' own."""
