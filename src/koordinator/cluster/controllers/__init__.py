"""The workload controllers of a local cluster, in the place of kube-controller-manager: an ordinary client of any
Kubernetes API server, which creates the pods of Deployments and the like."""
