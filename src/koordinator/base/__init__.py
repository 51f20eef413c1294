"""What every package stands on: clock, errors, logging, flags, feature gates, metrics. Imports nothing of ours."""
