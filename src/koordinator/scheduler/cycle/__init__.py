"""One attempt after the other: which pod is tried, what is decided, and what becomes of a pod that fits nowhere."""
