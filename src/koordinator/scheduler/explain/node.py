"""Explains a node: its resources, the pods on it, and the plugins that keep pods off it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api.explanations import NodeLack
from koordinator.api.node import Node
from koordinator.api.node_explanation import (
    EvaluatedPods,
    NodeExplanation,
    NodeResource,
    PodCount,
    RejectedPods,
)
from koordinator.model.tolerations import taint_text
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.row_amounts import PODS
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, amount_text
from koordinator.scheduler.explain.sources import Sources, filter_nodes
from koordinator.scheduler.queue.queued_pod import Pool

_KINDS: Final = 20
"""The maximum number of kinds of pods to evaluate: each needs PreFilter of all plugins over the whole cluster."""
_EXAMPLES: Final = 3
_PODS_LOOKED_AT: Final = 2000


@dataclass(slots=True)
class _Kind:
    """Pods that every plugin treats alike, represented by the first."""

    profile: Profile
    pods: list[PodInfo] = field(default_factory=list)


def explain_node(sources: Sources, name: str) -> NodeExplanation | None:
    """The explanation of the node; None when there is no such node."""
    view = sources.view
    row = view.columns.row_of.get(name)
    node = view.columns.nodes[row] if row is not None else None
    if row is None or node is None:
        return None
    not_up_to_date = _not_up_to_date(sources)
    evaluated, rejected = _filter_results(sources, row, name)
    return NodeExplanation(
        node=name,
        not_up_to_date=not_up_to_date,
        cordoned=node.spec.unschedulable,
        taints=[taint_text(taint) for taint in node.spec.taints],
        conditions=_errors(node),
        resources=_resources(view, row),
        pods=PodCount(running=len(view.pods_on.get(row, ())), limit=int(view.columns.allocatable[row, PODS])),
        nominated_pods=[pod.key for pod in view.nominations.on(name)],
        plugins=_facts(sources, row),
        placed_lately=sum(
            1
            for _, attempt in sources.decisions.latest()
            if attempt.placement is not None and attempt.placement.node_name == name
        ),
        evaluated=evaluated,
        rejected_by=rejected,
    )


def _not_up_to_date(sources: Sources) -> str | None:
    try:
        sources.notify_time()
    except Exception as error:
        # A plugin may raise anything; the state from before is shown.
        return f"{type(error).__name__}: {error}"
    return None


def _errors(node: Node) -> list[str]:
    """Conditions that indicate an error."""
    return [
        f"{condition.type}={condition.status}: {condition.message or condition.reason}"
        for condition in node.status.conditions
        if (condition.status != "True") == (condition.type == "Ready")
    ]


def _resources(view: ClusterView, row: int) -> list[NodeResource]:
    return [
        NodeResource(
            name=name,
            allocatable=amount_text(name, whole),
            requested=amount_text(name, used),
            free=amount_text(name, whole - used),
            requested_percent=round(used * 100 / whole, 1) if whole else None,
        )
        for name, (used, whole) in view.columns.numbers[row].by_name().items()
        if whole or used
    ]


def _facts(sources: Sources, row: int) -> dict[str, dict[str, Any]]:
    """Facts of plugins; if several profiles have a plugin, those of the first instance."""
    facts: dict[str, dict[str, Any]] = {}
    of_profiles = [profile.parts for profile in sources.profiles.values()]
    for plugins in (sources.view.engine_filters, *of_profiles):
        for plugin in plugins:
            if isinstance(plugin, Explainer) and plugin.name not in facts:
                known = _facts_of(plugin, row)
                if known is not None:
                    facts[plugin.name] = dict(known)
    return facts


def _facts_of(plugin: Explainer, row: int) -> Mapping[str, Any] | None:
    try:
        return plugin.node_facts(row)
    except Exception as error:
        # A plugin may raise anything; the facts of the others are shown.
        return {"error": f"{type(error).__name__}: {error}"}


def _filter_results(sources: Sources, row: int, name: str) -> tuple[EvaluatedPods, list[RejectedPods]]:
    """Which of the pods that wait or were last placed elsewhere could be placed here now, and the plugins that reject
    the others."""
    kinds = _kinds(sources, name)
    rejected: dict[tuple[str, tuple[str, ...]], list[tuple[_Kind, NodeLack]]] = {}
    would_take = 0
    for kind in kinds:
        objection = _objection(kind, sources.view, row)
        if objection is None:
            would_take += len(kind.pods)
        else:
            rejected.setdefault((objection.plugin, tuple(objection.reasons)), []).append((kind, objection))
    evaluated = EvaluatedPods(pods=sum(len(kind.pods) for kind in kinds), kinds=len(kinds), would_take=would_take)
    found = [
        RejectedPods(
            plugin=plugin,
            reasons=list(reasons),
            pods=sum(len(kind.pods) for kind, _ in entries),
            examples=[pod.key for kind, _ in entries for pod in kind.pods][:_EXAMPLES],
            details=list(dict.fromkeys(text for _, objection in entries for text in objection.details))[:_EXAMPLES],
        )
        for (plugin, reasons), entries in rejected.items()
    ]
    return evaluated, sorted(found, key=lambda each: -each.pods)


def _objection(kind: _Kind, view: ClusterView, row: int) -> NodeLack | None:
    """The first plugin's rejection of the node; None if it would take the pods."""
    try:
        filter_results = filter_nodes(kind.profile, view, kind.pods[0], [row])
        if filter_results.plan.rejection is not None:
            plugin, reason = filter_results.plan.rejection
            return NodeLack(plugin=plugin, reasons=[reason.text])
        restricted = filter_results.plan.restricted_to
        if restricted is not None and view.columns.names[row] not in restricted:
            plugins = ", ".join(filter_results.plan.restricted_by)
            return NodeLack(plugin=plugins, reasons=["the pod may only go to certain other nodes"])
        return next((objection.document for objection in filter_results.objections(0)), None)
    except Exception as error:
        # A plugin may raise anything; the results of the others are shown.
        return NodeLack(reasons=[f"could not be evaluated: {type(error).__name__}: {error}"])


def _kinds(sources: Sources, node_name: str) -> list[_Kind]:
    kinds: dict[Hashable, _Kind] = {}
    for pod in _recent(sources, node_name):
        profile = sources.profiles.get(pod.pod.spec.scheduler_name)
        if profile is None:
            continue
        key = profile.scheduler_name, profile.class_key(pod)
        if key in kinds or len(kinds) < _KINDS:
            kinds.setdefault(key, _Kind(profile)).pods.append(pod)
    return list(kinds.values())


def _recent(sources: Sources, node_name: str) -> Iterator[PodInfo]:
    """Pending pods, then those that were placed last, without those that are on this node already; a bounded number."""
    left = _PODS_LOOKED_AT
    for entry in sources.queue.pods():
        if entry.pool is not Pool.GATED and left:
            left -= 1
            yield entry.pod
    for _, attempt in sources.decisions.latest():
        if attempt.placement is not None and attempt.placement.node_name != node_name and left:
            left -= 1
            yield attempt.placement.pod
