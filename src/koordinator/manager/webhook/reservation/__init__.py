"""Admission of Reservations."""
