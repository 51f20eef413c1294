"""ElasticQuotaProfile: keeps the root quota of a tree as large as a group of nodes."""
