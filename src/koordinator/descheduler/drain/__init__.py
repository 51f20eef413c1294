"""Empties nodes by DrainNodes: no new pods, a place reserved for every pod, then migrated within all limits."""
