"""Runtime hooks: what pods get when they start, in the container runtime's requests, and are kept at while they run."""
