"""Reservation: room on a node that is kept for pods to come."""
