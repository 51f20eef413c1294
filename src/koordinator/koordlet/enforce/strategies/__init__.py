"""What is decided about the quality of service of a node's pods: each module one strategy, each a pure function."""
