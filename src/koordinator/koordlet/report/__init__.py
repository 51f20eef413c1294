"""What the agent tells others: objects of the API server, metrics, the audit log and pages."""
