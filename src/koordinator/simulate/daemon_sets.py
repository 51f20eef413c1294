"""Makes the pods of DaemonSets: one for each eligible node, which the scheduler then places there or not."""

from __future__ import annotations

from typing import Final

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.kinds import NODES, PODS
from koordinator.api.pod import Pod
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.target import Target
from koordinator.model.node_selector import required_predicate
from koordinator.model.tolerations import NO_EXECUTE, NO_SCHEDULE, tolerated
from koordinator.simulate.simulated_cluster import SimulatedCluster
from koordinator.simulate.workloads import pod_of_template

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TOLERATED: Final = (
    ("not-ready", NO_EXECUTE),
    ("unreachable", NO_EXECUTE),
    ("disk-pressure", NO_SCHEDULE),
    ("memory-pressure", NO_SCHEDULE),
    ("pid-pressure", NO_SCHEDULE),
    ("unschedulable", NO_SCHEDULE),
)
"""Tolerations that the DaemonSet controller adds to each of its pods."""


async def make_daemons(cluster: SimulatedCluster, daemon_set: Document) -> int:
    """Make its pods, each for one node by the affinity that the controller sets; returns how many. Raises ApiError."""
    api, made = cluster.api, 0
    template = pod_of_template(daemon_set)
    _tolerate(template["spec"])
    typed = convert(template, Pod)
    fits = required_predicate(typed)
    for node in sorted((await cluster.client.list(NODES)).items, key=lambda node: node.metadata.name):
        taints = [taint for taint in node.spec.taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE)]
        if (fits is not None and not fits(node)) or not all(
            tolerated(typed.spec.tolerations, taint) for taint in taints
        ):
            continue
        pod = pod_of_template(daemon_set)
        _tolerate(pod["spec"])
        _pin(pod["spec"], node.metadata.name)
        await create(api.environment, Target(api.resource(PODS), daemon_set["metadata"]["namespace"]), pod)
        made += 1
    return made


def _tolerate(spec: Document) -> None:
    added = [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect} for name, effect in _TOLERATED
    ]
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *added]


def _pin(spec: Document, node: str) -> None:
    """Add the affinity to the node to the template's own node affinity."""
    match = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault(_REQUIRED, {"nodeSelectorTerms": [{}]})
    required["nodeSelectorTerms"] = [{**term, "matchFields": [match]} for term in required["nodeSelectorTerms"]]
