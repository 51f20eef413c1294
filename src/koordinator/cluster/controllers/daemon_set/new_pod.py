"""The pod of a DaemonSet on a node: which nodes get one, and what it looks like. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodSpec
from koordinator.cluster.controllers.daemon_set.types import DAEMON_SETS, DaemonSet
from koordinator.cluster.controllers.pod_control import pod_of
from koordinator.cluster.controllers.revision_history import REVISION_HASH
from koordinator.model.node_selector import node_names, required_predicate
from koordinator.model.tolerations import NO_EXECUTE, NO_SCHEDULE, tolerated

TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
_POD_GENERATION: Final = "pod-template-generation"
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
)
_TOLERATED_ON_HOST_NETWORK: Final = ("node.kubernetes.io/network-unavailable", NO_SCHEDULE)


@dataclass(frozen=True, slots=True)
class Fitness:
    """Whether a node should have a pod."""

    should_run: bool
    may_stay: bool
    """Whether a pod that is there already may stay, which no taint with the effect NoExecute drives out."""


def fitness_of(daemon_set: DaemonSet) -> Callable[[Node], Fitness]:
    """How well nodes fit, by the name, the labels and the taints alone: whether there is room, the scheduler finds
    out. Raises DecodeError for a template that cannot be read."""
    document = daemon_set.spec.template.get("spec") or {}
    spec = convert(document | {"tolerations": _tolerations(document)}, PodSpec)
    selects = required_predicate(Pod(spec=spec))

    def judge(node: Node) -> Fitness:
        if spec.node_name not in ("", node.metadata.name) or (selects is not None and not selects(node)):
            return Fitness(should_run=False, may_stay=False)
        kept_away = {taint.effect for taint in node.spec.taints if not tolerated(spec.tolerations, taint)}
        drives_out = NO_EXECUTE in kept_away
        return Fitness(should_run=not drives_out and NO_SCHEDULE not in kept_away, may_stay=not drives_out)

    return judge


def node_of(pod: Pod) -> str:
    """The node that a pod of a DaemonSet is on or meant for; empty if it does not say."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    names = node_names(required) if required is not None else None
    return next(iter(names)) if names is not None and len(names) == 1 else ""


def is_updated(daemon_set: DaemonSet, pod: Pod, revision_hash: str) -> bool:
    """Whether the pod is of the current template."""
    labels, generation = pod.metadata.labels, daemon_set.metadata.annotations.get(TEMPLATE_GENERATION)
    return labels.get(REVISION_HASH) == revision_hash or (
        generation is not None and labels.get(_POD_GENERATION) == generation
    )


def new_pod(daemon_set: DaemonSet, node_name: str, revision_hash: str) -> Document:
    """The pod for one node, which the scheduler is to bind to that node and no other."""
    body = pod_of(DAEMON_SETS, daemon_set, daemon_set.spec.template)
    labels = body["metadata"].setdefault("labels", {})
    labels[REVISION_HASH] = revision_hash
    generation = daemon_set.metadata.annotations.get(TEMPLATE_GENERATION)
    if generation is not None:
        labels[_POD_GENERATION] = generation
    confine(body["spec"], node_name)
    return body


def confine(spec: Document, node_name: str) -> None:
    """Make the spec of a template that of the pod for one node: it tolerates what such pods do, and fits nowhere
    else."""
    spec["tolerations"] = _tolerations(spec)
    field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}


def _tolerations(spec: Document) -> list[dict[str, Any]]:
    """Those of the template, and those that every such pod has."""
    given: list[dict[str, Any]] = list(spec.get("tolerations") or ())
    wanted = (*_TOLERATED, _TOLERATED_ON_HOST_NETWORK) if spec.get("hostNetwork") else _TOLERATED
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in wanted]
    return [*given, *(each for each in added if each not in given)]
