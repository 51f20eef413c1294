"""Keeps the status of PodDisruptionBudgets true: evictions and preemption go by it.

On a real cluster kube-controller-manager does this. It is the one controller that the embedded cluster has, since
without it no budget would ever let a pod go.
"""
