"""The SLO ConfigMap: read, merged, checked, and turned into what applies to one node. Pure."""
