"""Dashboards and alerts of the programs' metrics: the tables, and the files that Grafana and Prometheus take."""
