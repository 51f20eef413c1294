"""Moves pods by PodMigrationJobs: capacity first, few at a time, within the limits of every workload."""
