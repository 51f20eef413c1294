"""Reservation: resources on a node that are kept for future pods."""
