"""From readings of the kernel to samples: pure, but for the previous readings that each collector remembers."""
