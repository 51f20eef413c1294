"""metrics.k8s.io, which ``kubectl top`` reads: what nodes and pods use, worked out of NodeMetrics when somebody asks.

On a real cluster metrics-server serves this API. Here it would measure nothing that the NodeMetrics do not say already.
"""
