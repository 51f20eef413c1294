"""The scheduling cycle: takes pods from the queue, decides, and handles pods that fit on no node."""
