"""Advice on what a user can do about each plugin that rejected nodes for a pod."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from koordinator.scheduler.engine.columns import Mask, Rows
from koordinator.scheduler.engine.decision import RejectedNodes
from koordinator.scheduler.engine.framework import FEASIBLE
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import amount_of, amount_text
from koordinator.scheduler.explain.sources import FilterResults

_DETAILED_NODES: Final = 64
"""The number of nodes whose details are computed."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One plugin that rejected nodes."""

    plugin: str
    reasons: tuple[str, ...]
    """The reasons of the last attempt, each once."""
    details: tuple[str, ...] = ()
    """What some of the nodes lack now, each once."""
    alone: Rows | None = None
    """The rows that no other plugin rejects; None when that is unknown."""


def obstacles(rejected: Sequence[RejectedNodes], filter_results: FilterResults | None) -> list[Obstacle]:
    """The plugins that rejected nodes in the last attempt; first those that alone reject some node."""
    reasons: dict[str, dict[str, None]] = {}
    for entry in rejected:
        reasons.setdefault(entry.plugin, {}).update(dict.fromkeys(entry.reasons))
    found = [_obstacle(plugin, tuple(texts), filter_results) for plugin, texts in reasons.items()]
    return sorted(found, key=lambda each: -(0 if each.alone is None else each.alone.shape[0]))


def usable(filter_results: FilterResults, plugin: str) -> Mask:
    """The evaluated rows that the other plugins do not reject as unresolvable: where preemption might help the pod."""
    mask = np.ones(filter_results.rows.shape[0], dtype=np.bool_)
    for entry, codes in zip(filter_results.plan.filters, filter_results.codes, strict=True):
        if entry.plugin.name == plugin:
            continue
        for code in np.unique(codes[codes != FEASIBLE]).tolist():
            if any(reason.unresolvable for reason in entry.plugin.reasons(filter_results.pod, entry.state, code)):
                mask &= codes != code
    return mask


def _obstacle(plugin: str, reasons: tuple[str, ...], filter_results: FilterResults | None) -> Obstacle:
    if filter_results is None:
        return Obstacle(plugin, reasons)
    objects = filter_results.against(plugin)
    alone = filter_results.rows[objects & ((filter_results.codes != FEASIBLE).sum(axis=0) == 1)]
    details = {
        lack.text: None
        for index in np.flatnonzero(objects)[:_DETAILED_NODES].tolist()
        for objection in filter_results.objections(index)
        if objection.plugin == plugin
        for lack in objection.lacks
    }
    return Obstacle(plugin, reasons, tuple(details), alone)


def _sentence(reason: str, pod: PodInfo, view: ClusterView, rows: Rows) -> str:
    """Advice on one of the reasons of NodeResourcesFit; ``rows`` are the nodes that have insufficient resources, but
    that the pod could use otherwise; none when it could not use any node."""
    if reason == "Too many pods":
        return "Nodes have no room for one more pod: add a node, or raise the kubelet's maxPods."
    resource = reason.removeprefix("Insufficient ")
    columns = view.columns
    column = columns.resources.column_of[resource]
    amount = pod.request.amounts.get(resource, 0)
    wanted = amount_of(resource, amount)
    if not rows.shape[0]:
        return f"The pod requests {wanted}, but there is no node that it could use at all."
    allocatable = columns.allocatable[rows, column]
    free = columns.unused[rows, column]
    largest, freest = int(allocatable.argmax()), int(free.argmax())
    if allocatable[largest] < amount:
        return _never(resource, wanted, int(allocatable[largest]), columns.names[int(rows[largest])])
    most = int(free[freest])
    if most >= amount:
        return f"The pod requests {wanted}; {columns.names[int(rows[freest])]} has as much free by now."
    return (
        f"The pod requests {wanted}. Among the nodes that are too full for that, {columns.names[int(rows[freest])]} "
        f"has the most free, {amount_text(resource, max(most, 0))}: short by {amount_text(resource, amount - most)}. "
        "Request less, make room, or add a node."
    )


def _never(resource: str, wanted: str, largest: int, name: str) -> str:
    if not largest:
        return f"No node that the pod could use offers any {resource}: add one that does, or drop the request."
    return (
        f"The pod requests {wanted}, for which nodes are too small: the largest of them, {name}, has "
        f"{amount_text(resource, largest)} in all. Request less, or add a larger node."
    )


_EXAMPLES: Final = 3
_FIT: Final = "NodeResourcesFit"


def advise(
    rejected: Sequence[RejectedNodes], pod: PodInfo, view: ClusterView, filter_results: FilterResults | None
) -> list[str]:
    """Sentences about the plugins that have rejected nodes, first those that alone reject some node."""
    sentences: list[str] = []
    for obstacle in obstacles(rejected, filter_results):
        is_fit = obstacle.plugin == _FIT
        found = _on_resources(obstacle, pod, view, filter_results) if is_fit else _from_table(obstacle)
        sentences += [text + _effect(obstacle, view) for text in found]
    return sentences


def _on_resources(
    obstacle: Obstacle, pod: PodInfo, view: ClusterView, filter_results: FilterResults | None
) -> list[str]:
    rows: Rows = np.array(sorted(view.columns.row_of.values()))
    if filter_results is not None:
        could_use = usable(filter_results, _FIT)
        too_full = could_use & filter_results.against(_FIT)
        if could_use.any() and not too_full.any():
            # Only nodes that the pod could not use anyway have insufficient resources.
            return []
        rows = filter_results.rows[too_full]
    return [_sentence(reason, pod, view, rows) for reason in obstacle.reasons]


def _effect(obstacle: Obstacle, view: ClusterView) -> str:
    """The nodes on which that change would be enough."""
    if obstacle.alone is None or not obstacle.alone.shape[0]:
        return ""
    count = obstacle.alone.shape[0]
    names = ", ".join(view.columns.names[row] for row in obstacle.alone[:_EXAMPLES].tolist())
    more = ", …" if count > _EXAMPLES else ""
    return f" Nothing else keeps the pod off {'one node' if count == 1 else f'{count} nodes'}: {names}{more}."


_QUOTA: Final = r"quotaName(?:Topo)?: \[?(?:[^\],]* )?(?P<name>[^\],]+)"
"""The reasons of ElasticQuota name the quota, or the quotas from the root down to the pod's."""
_OVER_QUOTA: Final = (
    "The pods of the quota {name} use, with this one, more than %s: wait until some of them end, request less, or "
    "raise the quota (koord explain quota {name} says who borrows what, and who is next)."
)
_OF_A_CLAIM: Final = {
    "(?i)persistentvolumeclaim": "Something is wrong with a volume claim of the pod, whatever the node: kubectl "
    "describe pvc.",
}
"""Whichever volume plugin evaluates a claim first, an error of the claim itself comes before what it would require of
nodes."""
_ADVICE: Final[Mapping[str, Mapping[str, str]]] = {
    "NodeAffinity": {
        "": "Change the pod's nodeSelector or node affinity, or label a node so that it matches{details}.",
    },
    "TaintToleration": {"": "Give the pod a toleration, or take a taint off a node with kubectl taint{details}."},
    "NodeUnschedulable": {"": "Some nodes are cordoned; to use one again: kubectl uncordon NODE."},
    "LoadAwareScheduling": {
        "expired": "Nodes have not reported their usage for too long: check that their agent runs.",
        "exceed": "Nodes are busy, measured and expected use counted: wait until it falls, request less, add a node, "
        "or raise the thresholds (usageThresholds of LoadAwareScheduling, or a node's annotation "
        "scheduling.koordinator.sh/usage-thresholds).",
    },
    "NodeNUMAResource": {
        "must be integer": "Pods that are bound to CPUs request whole CPUs: round the pod's CPU request.",
        "not multiple cpus per core": "Pods that require FullPCPUs request whole cores: round the pod's CPU request.",
        "invalid CPU Topology": "Nodes do not say which CPUs they have: check that koordlet runs there and writes a "
        "NodeResourceTopology.",
        "missing NUMA resources": "Nodes do not say what their NUMA nodes have: check that koordlet runs there.",
        "policy": "The policies of the pod and of nodes contradict each other: drop one of them (the pod's annotations "
        "resource-spec and numa-topology-spec, or the node's labels cpu-bind-policy and numa-topology-policy).",
        "NUMA": "The pod wants everything from few NUMA nodes: request less, make room there, or use a NUMA topology "
        "policy that is less strict.",
        "cpu": "Too few CPUs are free to be bound{details}: request fewer, make room, or prefer a bind policy instead "
        "of requiring it.",
    },
    "NodeName": {"": "spec.nodeName of the pod names a node that is not there."},
    "NodePorts": {"": "Another pod has the host port{details}: drop hostPort, or spread such pods over more nodes."},
    "PodTopologySpread": {
        "": "Placing the pod would make its topology spread more uneven than maxSkew allows: make room in the emptier "
        "domains, or use whenUnsatisfiable: ScheduleAnyway.",
    },
    "InterPodAffinity": {
        "": "Required pod affinity or anti-affinity, the pod's own or that of running pods, keeps it off: check its "
        "terms, or make them preferred.",
    },
    "VolumeBinding": {**_OF_A_CLAIM, "": "Look at the pod's volume claims: kubectl describe pvc."},
    "VolumeZone": {**_OF_A_CLAIM, "": "A volume of the pod is in another zone than these nodes."},
    "NodeVolumeLimits": {
        **_OF_A_CLAIM,
        "": "Nodes have as many volumes attached as their driver allows: add a node.",
    },
    "VolumeRestrictions": {
        **_OF_A_CLAIM,
        "": "A volume of the pod is in use elsewhere in a way that does not allow sharing.",
    },
    "DeviceShare": {
        "Insufficient": "Nodes have too few devices free{details}: wait until pods end, request less or fewer, or add "
        "a node.",
        "invalid resource device requests": "A share of a GPU is at most 100, and several GPUs are requested in whole "
        "hundreds: 200 are two.",
        "GPU Partition Table": "Nodes list no GPU partitions: drop the annotation gpu-partition-spec, or see "
        "docs/devices.md.",
        "number of GPU requests": "Nodes have no partition of so many GPUs: request another number.",
        "Topology Tree": "The Device objects of nodes do not say where their GPUs are: drop requiredTopologyScope.",
        "Joint-Allocate": "No devices that are free are on the same PCIe switches: request fewer, or drop SamePCIe.",
        "resource template": "Request just what one of the templates of the model has (docs/devices.md).",
        "does not support GPU Share": "GPUs of the model are not shared: request whole ones.",
        "GPUIsolationProvider": "Nodes isolate shares of GPUs otherwise than the label gpu-isolation-provider of the "
        "pod says.",
    },
    "ElasticQuota": {
        f"{_QUOTA}.*used: <empty>": "The quota {name} has nothing in use, and the pod alone requests more than it may "
        "use at present: request less, or raise the quota (koord explain quota {name} says where each amount comes "
        "from).",
        f"non-preemptible.*{_QUOTA}": _OVER_QUOTA % "its min",
        _QUOTA: _OVER_QUOTA % "its runtime, which is between its min and its max",
    },
}
"""Plugin -> pattern in a reason of it -> what to do: the first that matches is used. ``{details}`` is replaced by
examples of what nodes lack, other names by groups of the pattern."""


def _from_table(obstacle: Obstacle) -> list[str]:
    """The advice for each of the reasons, each once."""
    shown = [*obstacle.details[:_EXAMPLES], *(["…"] if len(obstacle.details) > _EXAMPLES else [])]
    details = f" ({'; '.join(shown)})" if shown else ""
    entries, found = _ADVICE.get(obstacle.plugin, {}), dict[str, None]()
    for reason in obstacle.reasons:
        matches = ((text, match) for pattern, text in entries.items() if (match := re.search(pattern, reason)))
        for text, match in islice(matches, 1):
            found[text.format(details=details, **match.groupdict())] = None
    return list(found)
