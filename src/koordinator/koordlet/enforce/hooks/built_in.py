"""The hooks of koordlet itself, in one list, and which of them the feature gates let work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from koordinator.base.feature_gates import FeatureGates
from koordinator.koordlet.enforce.hooks import (
    batch_resource,
    core_sched,
    cpu_normalization,
    cpuset_allocator,
    devices,
    group_identity,
    network_classes,
    oom_score_adj,
    pod_resctrl,
)
from koordinator.koordlet.enforce.hooks.registry import Hook, Hooks

_HOOKS: Final = (
    group_identity.HOOK,
    cpuset_allocator.HOOK,
    batch_resource.HOOK,
    cpu_normalization.HOOK,
    core_sched.HOOK,
    pod_resctrl.HOOK,
    pod_resctrl.TASKS_HOOK,
    network_classes.HOOK,
    oom_score_adj.HOOK,
    devices.GPU_HOOK,
)
_RELEASING: Final = (
    group_identity.RELEASING,
    core_sched.RELEASING,
    pod_resctrl.RELEASING,
    cpuset_allocator.RELEASING,
    batch_resource.RELEASING,
    cpu_normalization.RELEASING,
)
"""In place of those whose gates are off. What was given at the start of a container alone goes with the container."""


def make_hooks(gates: FeatureGates, rdma: Hook, installed: Sequence[Hook] = ()) -> Hooks:
    """By the feature gates, with those of other packages, which no gate switches."""
    enabled = (*(hook for hook in (*_HOOKS, rdma) if gates.enabled(hook.gate)), *installed)
    return Hooks(
        enabled=tuple(sorted(enabled, key=lambda hook: hook.name)),
        released=tuple(hook for hook in _RELEASING if not gates.enabled(hook.gate)),
    )
