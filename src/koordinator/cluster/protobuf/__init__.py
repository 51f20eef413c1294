"""Kubernetes' objects in protobuf, as client-go programs send them and, where they accept nothing else, get them."""
