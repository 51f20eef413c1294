"""What Kubernetes' own types look like: fields, merge keys, list types and protobuf numbers of the built-in kinds."""
