"""Gangs: pods that get their nodes together or not at all."""
