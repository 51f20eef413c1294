"""Koordinator's quality-of-service classes, and how a pod falls into one."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from koordinator.api import labels
from koordinator.api.pod import Pod, ResourceRequirements
from koordinator.api.quantity import Quantity


class QoSClass(StrEnum):
    """From the most to the least latency-sensitive; NONE is a pod that names no class."""

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"
    NONE = ""


class KubernetesQoS(StrEnum):
    """The classes of Kubernetes itself."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


_KNOWN: Final = {member.value: member for member in QoSClass}
_DEFAULTS: Final = {
    KubernetesQoS.GUARANTEED.value: QoSClass.LSR,
    KubernetesQoS.BURSTABLE.value: QoSClass.LS,
    KubernetesQoS.BEST_EFFORT.value: QoSClass.BE,
}
_COMPUTE_RESOURCES: Final = ("cpu", "memory")


def qos_class_of_name(name: str) -> QoSClass:
    """The class of that name; NONE for any other text."""
    return _KNOWN.get(name, QoSClass.NONE)


def qos_class_raw(pod: Pod) -> QoSClass:
    """The class that the pod's label names."""
    return _KNOWN.get(pod.metadata.labels.get(labels.QOS_CLASS, ""), QoSClass.NONE)


def qos_class_with_default(pod: Pod) -> QoSClass:
    """The class that the pod's label names, else the one that its Kubernetes class stands for."""
    return qos_class_raw(pod) or _DEFAULTS.get(kubernetes_qos(pod), QoSClass.NONE)


def kubernetes_qos(pod: Pod) -> str:
    """The Kubernetes class: from the status where the API server has set it, else computed."""
    return pod.status.qos_class or compute_kubernetes_qos(pod)


def compute_kubernetes_qos(pod: Pod) -> KubernetesQoS:
    """The class that follows from CPU and memory of all containers, or of the pod as a whole where it has its own."""
    whole = pod.spec.resources
    if whole is not None and (whole.requests or whole.limits):
        return classify([whole])
    return classify(container.resources for container in (*pod.spec.containers, *pod.spec.init_containers))


def classify(parts: Iterable[ResourceRequirements]) -> KubernetesQoS:
    """The class of a pod whose containers have these resources."""
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    every_part_limited = True
    for part in parts:
        _add(requests, part.requests)
        limited = _add(limits, part.limits)
        every_part_limited = every_part_limited and limited == len(_COMPUTE_RESOURCES)
    if not requests and not limits:
        return KubernetesQoS.BEST_EFFORT
    if every_part_limited and requests == limits:
        return KubernetesQoS.GUARANTEED
    return KubernetesQoS.BURSTABLE


def _add(totals: dict[str, int], amounts: dict[str, Quantity]) -> int:
    """Add the positive amounts; returns how many there were."""
    found = 0
    for name in _COMPUTE_RESOURCES:
        amount = amounts.get(name)
        if amount is not None and amount.nanos > 0:
            totals[name] = totals.get(name, 0) + amount.nanos
            found += 1
    return found
