"""What Kubernetes itself says of its built-in types: which fields they have, and how lists in them merge."""
