"""ElasticQuota: every pod is admitted against its quota's present share of the cluster."""
