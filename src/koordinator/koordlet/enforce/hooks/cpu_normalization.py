"""CPUNormalization: a CPU limit means as much work on a fast CPU as on a plain one.

koord-manager writes to the Node how many plain cores a core of it is worth. The quotas of pods on shared CPUs are
divided by that (pkg/koordlet/runtimehooks/hooks/cpunormalization).
"""

from __future__ import annotations

from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.qos import QoSClass
from koordinator.koordlet import features
from koordinator.koordlet.enforce.executor.desired_settings import Priority
from koordinator.koordlet.enforce.hooks.contexts import Change, ContainerContext, PodContext, allocation
from koordinator.koordlet.enforce.hooks.registry import STARTING, Hook
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.koordlet.pods.kubelet_bandwidths import Bandwidth
from koordinator.node.kernel_files import LEAST_QUOTA

OWNER: Final = "CPUNormalization"
_RELEASED: Final = "CPUs count as no more than plain ones: the gate CPUNormalization is off, or the Node says so"
_REASON: Final = f"the Node's annotation {annotation_keys.CPU_NORMALIZATION_RATIO}"


def pod(pod_: PodContext, rules: Rules) -> Change | None:
    return _change(pod_, pod_.bandwidth, rules)


def container(pod_: PodContext, container_: ContainerContext, rules: Rules) -> Change | None:
    return _change(pod_, container_.bandwidth, rules)


def normalized(quota: int, ratio: float | None) -> int:
    """The quota that is worth as much on faster CPUs, or the least that the kernel takes.

    No limit stays none, and slower CPUs change nothing.
    """
    if quota <= 0 or ratio is None or ratio <= 1:
        return quota
    return max(-int(-quota // ratio), LEAST_QUOTA)


def _change(pod_: PodContext, given: Bandwidth | None, rules: Rules) -> Change | None:
    """Without a ratio above 1, as with the gate off, the quotas are the kubelet's again, whatever an earlier ratio has
    made of them."""
    if given is None or given.quota <= 0 or not _is_on_shared_cpus(pod_):
        return None
    ratio = rules.normalization_ratio
    if ratio is None or ratio <= 1:
        return Change(_RELEASED, Priority.RELEASE, cpu_quota=given.quota)
    return Change(_REASON, Priority.BASE, cpu_quota=normalized(given.quota, ratio))


def _is_on_shared_cpus(pod_: PodContext) -> bool:
    if pod_.qos is QoSClass.LS:
        return True
    return pod_.qos is QoSClass.NONE and not allocation(pod_).cpus


HOOK: Final = Hook(OWNER, features.CPU_NORMALIZATION, STARTING, pod=pod, container=container)
RELEASING: Final = Hook(OWNER, features.CPU_NORMALIZATION, pod=pod, container=container)
