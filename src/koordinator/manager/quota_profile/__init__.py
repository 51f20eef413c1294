"""ElasticQuotaProfile: the root quota of a tree is kept as large as a group of nodes."""
