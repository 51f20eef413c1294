"""What would unblock a pod: event kinds in plain words, and what a person can do about each reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from koordinator.scheduler.engine.decision import RuledOut
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.amounts import amount_text

_MEANING: Final[Mapping[str, str]] = {
    EventKind.NODE_ADD: "a node is added",
    EventKind.NODE_ALLOCATABLE: "a node offers more, or an annotation of it changes",
    EventKind.NODE_LABEL: "labels of a node change",
    EventKind.NODE_TAINT: "a node is uncordoned or its taints change",
    EventKind.NODE_CONDITION: "conditions or images of a node change",
    EventKind.NODE_DELETE: "a node is deleted",
    EventKind.POD_DELETE: "a pod on some node finishes or is deleted",
    EventKind.POD_SCALE_DOWN: "a pod on some node is resized to request less",
    EventKind.POD_ADD: "another pod is placed",
    EventKind.POD_LABEL: "labels of a pod on some node change",
    EventKind.POD_UPDATE: "this pod itself is changed",
    "NodeMetric/Add": "a node reports its usage for the first time",
    "NodeMetric/Update": "a node reports new usage",
    "NodeMetric/Delete": "the usage report of a node is deleted",
}
_ACTIONS: Final = {"Add": "created", "Update": "changed", "Delete": "deleted"}


def event_meaning(kind: str) -> str:
    """``Node/Add`` as a person would say it."""
    known = _MEANING.get(kind)
    if known is not None:
        return known
    name, _, action = kind.partition("/")
    return f"a {name} is {_ACTIONS.get(action, 'changed')}"


def advise(ruled_out: Sequence[RuledOut], pod: PodInfo, view: ClusterView) -> list[str]:
    """One sentence for each plugin that has ruled nodes out and about which there is something to say."""
    by_plugin: dict[str, dict[str, None]] = {}
    for entry in ruled_out:
        by_plugin.setdefault(entry.plugin, {}).update(dict.fromkeys(entry.reasons))
    sentences: list[str] = []
    for plugin, reasons in by_plugin.items():
        adviser = _ADVISERS.get(plugin)
        if adviser is not None:
            sentences.extend(adviser(list(reasons), pod, view))
    return sentences


def _resources(reasons: Iterable[str], pod: PodInfo, view: ClusterView) -> list[str]:
    columns = view.columns
    columns.fit_resources()
    sentences = []
    for reason in reasons:
        if reason == "Too many pods":
            sentences.append("Nodes have no room for one more pod: add a node, or raise the kubelet's maxPods.")
            continue
        resource = reason.removeprefix("Insufficient ")
        amount = pod.request.amounts.get(columns.resources.column(resource), 0)
        sentences.append(_one_resource(view, resource, amount))
    return sentences


def _one_resource(view: ClusterView, resource: str, amount: int) -> str:
    columns = view.columns
    column = columns.resources.column(resource)
    alive = columns.alive[: columns.size]
    columns.fit_resources()
    offered = columns.allocatable[: columns.size, column][alive]
    free = (columns.allocatable - columns.requested)[: columns.size, column][alive]
    largest, most = int(offered.max(initial=0)), int(free.max(initial=0))
    wanted = amount_text(resource, amount)
    if largest < amount:
        offers = f"the largest offers {amount_text(resource, largest)}" if largest else "none offers any"
        return f"No node could ever give {wanted} {resource} ({offers}): request less, or add a larger node."
    return (
        f"{resource}: the pod requests {wanted}, and the most that is free on any node is "
        f"{amount_text(resource, max(most, 0))}: request less, free some, or add a node."
    )


def _node_selector(reasons: Iterable[str], pod: PodInfo, view: ClusterView) -> list[str]:
    selector = pod.pod.spec.node_selector
    asked = f" ({', '.join(f'{key}={value}' for key, value in sorted(selector.items()))})" if selector else ""
    return [f"Change the pod's nodeSelector or node affinity{asked}, or label a node so that it matches."]


def _taints(reasons: Iterable[str], pod: PodInfo, view: ClusterView) -> list[str]:
    return ["Add a toleration to the pod for the taint that the reason names, or take it off a node: kubectl taint."]


def _cordon(reasons: Iterable[str], pod: PodInfo, view: ClusterView) -> list[str]:
    return ["Nodes are cordoned; to use one again: kubectl uncordon NODE."]


def _load(reasons: Iterable[str], pod: PodInfo, view: ClusterView) -> list[str]:
    sentences = []
    if any("expired" in reason for reason in reasons):
        sentences.append("Nodes have not reported their usage for too long: check that their agent runs.")
    if any("exceed" in reason for reason in reasons):
        sentences.append(
            "Nodes are busy, measured and expected use counted: wait until it falls, add a node, or raise the "
            "thresholds (usageThresholds of LoadAwareScheduling, or a node's annotation "
            "scheduling.koordinator.sh/usage-thresholds)."
        )
    return sentences


def _fixed(text: str) -> Callable[[Iterable[str], PodInfo, ClusterView], list[str]]:
    return lambda reasons, pod, view: [text]


_ADVISERS: Final[Mapping[str, Callable[[Sequence[str], PodInfo, ClusterView], list[str]]]] = {
    "NodeResourcesFit": _resources,
    "NodeAffinity": _node_selector,
    "TaintToleration": _taints,
    "NodeUnschedulable": _cordon,
    "LoadAwareScheduling": _load,
    "NodeName": _fixed("spec.nodeName of the pod names a node that is not there."),
    "NodePorts": _fixed("Another pod has the host port; drop hostPort, or spread the pods over more nodes."),
    "PodTopologySpread": _fixed(
        "Placing the pod would make its topology spread more uneven than maxSkew allows: free room in the emptier "
        "domains, or use whenUnsatisfiable: ScheduleAnyway."
    ),
    "InterPodAffinity": _fixed(
        "Required pod affinity or anti-affinity, the pod's own or that of running pods, keeps it off: check its terms, "
        "or make them preferred."
    ),
    "VolumeBinding": _fixed("Look at the pod's volume claims: kubectl describe pvc."),
    "VolumeZone": _fixed("A volume of the pod is in another zone than these nodes."),
    "NodeVolumeLimits": _fixed("Nodes have as many volumes attached as their driver allows: add a node."),
    "VolumeRestrictions": _fixed("A volume of the pod is in use elsewhere in a way that does not allow sharing."),
}
