"""Kubernetes' scheduler_perf workloads, run against schedulers as processes on a real kube-apiserver."""
