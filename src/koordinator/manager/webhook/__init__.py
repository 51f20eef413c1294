"""Admission webhooks: what the API server asks the manager before it stores an object."""
