"""What the agent decides once a second for the node and its pods, and how the kernel gets it."""
