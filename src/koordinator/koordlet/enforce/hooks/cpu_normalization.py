"""CPUNormalization: a CPU limit means as much work on a fast CPU as on a plain one.

koord-manager writes to the Node how many plain cores a core of it is worth. The quotas of pods on shared CPUs are
divided by that (pkg/koordlet/runtimehooks/hooks/cpunormalization).
"""

from __future__ import annotations

from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.node import Node
from koordinator.api.qos import QoSClass
from koordinator.koordlet.enforce.executor.desired_settings import Priority
from koordinator.koordlet.enforce.hooks.contexts import Change, ContainerContext, HookError, PodContext, allocation
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.koordlet.pods.kubelet_bandwidths import Bandwidth
from koordinator.node.kernel_files import LEAST_QUOTA

OWNER: Final = "CPUNormalization"
_REASON: Final = f"the Node's annotation {annotation_keys.CPU_NORMALIZATION_RATIO}"
_OFF: Final = "the gate CPUNormalization is off"


def pod(pod_: PodContext, rules: Rules) -> Change | None:
    return _change(pod_, pod_.bandwidth, rules)


def container(pod_: PodContext, container_: ContainerContext, rules: Rules) -> Change | None:
    return _change(pod_, container_.bandwidth, rules)


def release_pod(pod_: PodContext, _: Rules) -> Change | None:
    return _release(pod_, pod_.bandwidth, _OFF)


def release_container(pod_: PodContext, container_: ContainerContext, _: Rules) -> Change | None:
    return _release(pod_, container_.bandwidth, _OFF)


def normalization_ratio(node: Node) -> float | None:
    """The ratio that koord-manager has written; None without one. HookError if it is not a number above 0."""
    text = node.metadata.annotations.get(annotation_keys.CPU_NORMALIZATION_RATIO)
    if text is None:
        return None
    where = f"metadata.annotations[{annotation_keys.CPU_NORMALIZATION_RATIO}] of the Node"
    try:
        ratio = float(text)
    except ValueError:
        raise HookError(f"{where}: {text!r} is not a number") from None
    if not 0 < ratio < float("inf"):
        raise HookError(f"{where}: {text!r} is not above 0")
    return ratio


def normalized(quota: int, ratio: float | None) -> int:
    """The quota that is worth as much on faster CPUs, or the least that the kernel takes.

    No limit stays none, and slower CPUs change nothing.
    """
    if quota <= 0 or ratio is None or ratio <= 1:
        return quota
    return max(-int(-quota // ratio), LEAST_QUOTA)


def _change(pod_: PodContext, given: Bandwidth | None, rules: Rules) -> Change | None:
    """Without a ratio above 1, the quotas are the kubelet's again, whatever an earlier ratio has made of them."""
    ratio = rules.normalization_ratio
    if ratio is None or ratio <= 1:
        return _release(pod_, given, "a CPU of the Node is worth no more than a plain one")
    if given is None or given.quota <= 0 or not _is_on_shared_cpus(pod_):
        return None
    return Change(_REASON, Priority.BASE, cpu_quota=normalized(given.quota, ratio))


def _release(pod_: PodContext, given: Bandwidth | None, reason: str) -> Change | None:
    if given is None or given.quota <= 0 or not _is_on_shared_cpus(pod_):
        return None
    return Change(reason, Priority.RELEASE, cpu_quota=given.quota)


def _is_on_shared_cpus(pod_: PodContext) -> bool:
    if pod_.qos is QoSClass.LS:
        return True
    return pod_.qos is QoSClass.NONE and not allocation(pod_).cpus
