"""DefaultPreemption: room for an important pod at the cost of less important ones."""
