"""What the NodeSLO says of each class of pods, and which class a pod is of; for strategies and hooks."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

from koordinator.api.qos import KubernetesQoS, QoSClass
from koordinator.api.resource_qos import ResourceQoS, ResourceQoSStrategy

CLASS_NAMES: Final[Mapping[QoSClass, str]] = {
    QoSClass.LSE: "LSR",
    QoSClass.LSR: "LSR",
    QoSClass.LS: "LS",
    QoSClass.BE: "BE",
}
"""Of the NodeSLO, by what the label of a pod says. SYSTEM pods are of the class that their folder stands for."""
_NOTHING: Final = ResourceQoS()


def qos_classes(strategy: ResourceQoSStrategy | None) -> dict[str, ResourceQoS]:
    """By name of the class, all three of them; none without a NodeSLO."""
    if strategy is None:
        return {}
    classes = {"LSR": strategy.lsr_class, "LS": strategy.ls_class, "BE": strategy.be_class}
    return {name: class_ or _NOTHING for name, class_ in classes.items()}


def class_name(qos: QoSClass, kubernetes_qos: str, enabled: Container[str]) -> str:
    """The class of a pod, or of all in a folder of Kubernetes' classes (``qos`` NONE). Guaranteed pods without a label
    count as LSR where that class is among the ``enabled`` ones, else as LS."""
    named = CLASS_NAMES.get(qos)
    if named is not None:
        return named
    if kubernetes_qos == KubernetesQoS.BEST_EFFORT:
        return "BE"
    return "LSR" if kubernetes_qos == KubernetesQoS.GUARANTEED and "LSR" in enabled else "LS"
