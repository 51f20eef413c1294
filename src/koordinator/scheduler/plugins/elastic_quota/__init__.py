"""ElasticQuota: a pod is admitted if its request fits in its quota's runtime, the quota's current share of the
cluster."""
