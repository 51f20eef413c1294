"""Admission of the SLO ConfigMap."""
