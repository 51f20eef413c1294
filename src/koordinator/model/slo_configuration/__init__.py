"""The SLO ConfigMap: decoded, merged, checked, and resolved for each node. Pure."""
