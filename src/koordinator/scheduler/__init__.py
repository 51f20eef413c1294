"""koord-scheduler: places pods by requests, constraints and measured load."""
