"""Applies the API's events to the cluster state and the queue."""
