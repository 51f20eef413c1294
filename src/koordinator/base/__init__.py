"""The foundation of every package: clock, errors, logging, flags, feature gates, metrics. Imports no other package."""
