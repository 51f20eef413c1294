"""What the agent measures of its node: the readings, the usage that follows from them, and forecasts of it."""
