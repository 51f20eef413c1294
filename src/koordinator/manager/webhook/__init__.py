"""Admission webhooks: the API server calls them before it stores an object."""
