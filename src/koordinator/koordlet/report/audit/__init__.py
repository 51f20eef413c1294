"""What the agent has done to the node and why: a log of bounded size, and a way to page through it."""
