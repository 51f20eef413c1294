"""PodSecurity: namespaces say by labels what the pods in them may do to their node."""
