"""Empties several nodes by a DrainNodeGroup: plans DrainNodes one after the other, and confirms as many as it may."""
