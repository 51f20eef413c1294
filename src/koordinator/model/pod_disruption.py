"""Which evictions the Eviction API counts against a PodDisruptionBudget (k8s.io/kubernetes, registry/core/pod/storage).

On plain values, since the embedded API server has these objects as documents.
"""

from __future__ import annotations

from typing import Final

ALWAYS_ALLOW: Final = "AlwaysAllow"
"""The unhealthyPodEvictionPolicy of a budget that protects ready pods alone; by default it is IfHealthyBudget."""
_UNPROTECTED: Final = frozenset(("Succeeded", "Failed", "Pending"))


def is_unprotected(phase: str, *, is_terminating: bool) -> bool:
    """Whether no budget is asked about a pod: nothing that a budget protects goes with it."""
    return is_terminating or phase in _UNPROTECTED


def lets_unready_go(policy: str, current_healthy: int, desired_healthy: int) -> bool:
    """Whether a budget does not count the eviction of a pod that is not ready."""
    return policy == ALWAYS_ALLOW or current_healthy >= desired_healthy > 0
