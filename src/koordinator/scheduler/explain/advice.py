"""What a person can do about what each plugin has against a pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from koordinator.scheduler.engine.decision import RejectedNodes
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.filter_results import FilterResults
from koordinator.scheduler.explain.obstacles import Obstacle, obstacles, usable
from koordinator.scheduler.explain.resource_advice import advise_on_resources

_EXAMPLES: Final = 3
_FIT: Final = "NodeResourcesFit"


def advise(
    rejected: Sequence[RejectedNodes], pod: PodInfo, view: ClusterView, filter_results: FilterResults | None
) -> list[str]:
    """Sentences about the plugins that have rejected nodes, those first that alone keep the pod off some node."""
    sentences: list[str] = []
    for obstacle in obstacles(rejected, filter_results):
        if obstacle.plugin == _FIT:
            found = _on_resources(obstacle, pod, view, filter_results)
        else:
            adviser = _ADVISERS.get(obstacle.plugin)
            found = adviser(obstacle) if adviser is not None else []
        sentences += [text + _effect(obstacle, view) for text in found]
    return sentences


def _on_resources(
    obstacle: Obstacle, pod: PodInfo, view: ClusterView, filter_results: FilterResults | None
) -> list[str]:
    if filter_results is None:
        return advise_on_resources(obstacle.reasons, pod, view, np.array(sorted(view.columns.row_of.values())))
    could_use = usable(filter_results, _FIT)
    too_full = could_use & filter_results.against(_FIT)
    if could_use.any() and not too_full.any():
        # Only nodes that the pod could not use anyway have no room.
        return []
    return advise_on_resources(obstacle.reasons, pod, view, filter_results.rows[too_full])


def _effect(obstacle: Obstacle, view: ClusterView) -> str:
    """Where that would be enough."""
    if obstacle.alone is None or not obstacle.alone.shape[0]:
        return ""
    count = obstacle.alone.shape[0]
    names = ", ".join(view.columns.names[row] for row in obstacle.alone[:_EXAMPLES].tolist())
    more = ", …" if count > _EXAMPLES else ""
    return f" Nothing else keeps the pod off {'one node' if count == 1 else f'{count} nodes'}: {names}{more}."


_Adviser = Callable[[Obstacle], list[str]]


def _fixed(text: str) -> _Adviser:
    return lambda obstacle: [text]


def _with_details(text: str) -> _Adviser:
    """``{}`` stands for what nodes lack, by example."""

    def adviser(obstacle: Obstacle) -> list[str]:
        shown = [*obstacle.details[:_EXAMPLES], *(["…"] if len(obstacle.details) > _EXAMPLES else [])]
        return [text.format(f" ({'; '.join(shown)})" if shown else "")]

    return adviser


def _load(obstacle: Obstacle) -> list[str]:
    sentences = []
    if any("expired" in reason for reason in obstacle.reasons):
        sentences.append("Nodes have not reported their usage for too long: check that their agent runs.")
    if any("exceed" in reason for reason in obstacle.reasons):
        sentences.append(
            "Nodes are busy, measured and expected use counted: wait until it falls, request less, add a node, or "
            "raise the thresholds (usageThresholds of LoadAwareScheduling, or a node's annotation "
            "scheduling.koordinator.sh/usage-thresholds)."
        )
    return sentences


def _volumes(otherwise: str) -> _Adviser:
    """Whichever plugin looks at a claim first, what is wrong with the claim comes before what it would ask of nodes."""

    def adviser(obstacle: Obstacle) -> list[str]:
        if any("persistentvolumeclaim" in reason.lower() for reason in obstacle.reasons):
            return ["Something is wrong with a volume claim of the pod, whatever the node: kubectl describe pvc."]
        return [otherwise]

    return adviser


_ADVISERS: Final[Mapping[str, _Adviser]] = {
    "NodeAffinity": _with_details(
        "Change the pod's nodeSelector or node affinity, or label a node so that it matches{}."
    ),
    "TaintToleration": _with_details("Give the pod a toleration, or take a taint off a node with kubectl taint{}."),
    "NodeUnschedulable": _fixed("Some nodes are cordoned; to use one again: kubectl uncordon NODE."),
    "LoadAwareScheduling": _load,
    "NodeName": _fixed("spec.nodeName of the pod names a node that is not there."),
    "NodePorts": _with_details("Another pod has the host port{}: drop hostPort, or spread such pods over more nodes."),
    "PodTopologySpread": _fixed(
        "Placing the pod would make its topology spread more uneven than maxSkew allows: make room in the emptier "
        "domains, or use whenUnsatisfiable: ScheduleAnyway."
    ),
    "InterPodAffinity": _fixed(
        "Required pod affinity or anti-affinity, the pod's own or that of running pods, keeps it off: check its terms, "
        "or make them preferred."
    ),
    "VolumeBinding": _volumes("Look at the pod's volume claims: kubectl describe pvc."),
    "VolumeZone": _volumes("A volume of the pod is in another zone than these nodes."),
    "NodeVolumeLimits": _volumes("Nodes have as many volumes attached as their driver allows: add a node."),
    "VolumeRestrictions": _volumes("A volume of the pod is in use elsewhere in a way that does not allow sharing."),
}
