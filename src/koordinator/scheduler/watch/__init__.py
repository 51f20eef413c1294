"""Events in: from the objects of the API to the cluster state and the queue."""
