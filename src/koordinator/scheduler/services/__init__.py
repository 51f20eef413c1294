"""HTTP services beside health and metrics: the original's read-only API, explanations, debug flags."""
