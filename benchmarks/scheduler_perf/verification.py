"""Whether the placements at the end of a workload are right: what must be bound is, and no rule is broken.

This is written anew and plainly, pod by pod, so that it shares no mistake with a scheduler. It relies on what holds for
every correct scheduler at the end, whatever the order was: no node holds more than it can, required node affinity and
anti-affinity hold, and where no pods were deleted, hard topology spread does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from benchmarks.scheduler_perf.pod_tracker import Key, PodTracker
from koordinator.api.node import Node
from koordinator.api.pod import (
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from koordinator.api.quantity import Quantity
from koordinator.model.label_selector import compile_selector

Placed = Sequence[tuple[Pod, Node]]


def faults(nodes: Iterable[Node], pods: Sequence[Pod], tracker: PodTracker, must_be_bound: Iterable[Key]) -> list[str]:
    """Sentences, none when all is right. ``nodes`` and ``pods``: all that the API server has at the end."""
    by_name = {node.metadata.name: node for node in nodes}
    placed = [(pod, by_name[pod.spec.node_name]) for pod in pods if pod.spec.node_name in by_name]
    return [
        *_not_bound(must_be_bound, tracker),
        *_moved(pods, tracker),
        *_too_full(placed),
        *_wrong_nodes(placed),
        *_not_apart(placed),
        *([] if tracker.deleted else _uneven(placed, list(by_name.values()))),
    ]


def _not_bound(keys: Iterable[Key], tracker: PodTracker) -> Iterator[str]:
    missing = [key for key in keys if key not in tracker.bindings]
    if missing:
        yield f"{len(missing)} pods that must be bound were not, such as {'/'.join(missing[0])}"


def _moved(pods: Iterable[Pod], tracker: PodTracker) -> Iterator[str]:
    moved = set(tracker.moved)
    for pod in pods:
        key = (pod.metadata.namespace, pod.metadata.name)
        if key in tracker.bindings and tracker.bindings[key].node != pod.spec.node_name:
            moved.add(key)
    if moved:
        yield f"{len(moved)} pods were seen on two nodes, such as {'/'.join(min(moved))}"


def _too_full(placed: Placed) -> Iterator[str]:
    """Pods that fit no node are found here too, if one was bound."""
    requested: defaultdict[str, Counter[str]] = defaultdict(Counter)
    nodes = {node.metadata.name: node for _, node in placed}
    for pod, node in placed:
        amounts = requested[node.metadata.name]
        amounts["pods"] += Quantity.parse("1").nanos
        for container in pod.spec.containers:
            for resource, quantity in container.resources.requests.items():
                amounts[resource] += quantity.nanos
    for name, amounts in requested.items():
        allocatable = nodes[name].status.allocatable
        for resource, amount in amounts.items():
            if amount > (allocatable[resource].nanos if resource in allocatable else 0):
                yield f"node {name} has more {resource} requested than it has"


def _wrong_nodes(placed: Placed) -> Iterator[str]:
    for pod, node in placed:
        labels = node.metadata.labels
        if any(labels.get(name) != value for name, value in pod.spec.node_selector.items()):
            yield f"{pod.metadata.key} is on {node.metadata.name}, which its node selector excludes"
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
        if required is not None and not any(_term_holds(term, node) for term in required.node_selector_terms):
            yield f"{pod.metadata.key} is on {node.metadata.name}, which its node affinity excludes"


def _term_holds(term: NodeSelectorTerm, node: Node) -> bool:
    fields = {"metadata.name": node.metadata.name}
    return all(_holds(one, node.metadata.labels) for one in term.match_expressions) and all(
        _holds(one, fields) for one in term.match_fields
    )


def _holds(requirement: NodeSelectorRequirement, values: Mapping[str, str]) -> bool:
    value = values.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return value is not None and (int(value) > int(requirement.values[0])) == (requirement.operator == "Gt")


def _not_apart(placed: Placed) -> Iterator[str]:
    """Required anti-affinity whose terms name their namespaces or none; those with a selector are left out."""
    by_domain: defaultdict[tuple[str, str], list[Pod]] = defaultdict(list)
    for pod, node in placed:
        for label in node.metadata.labels.items():
            by_domain[label].append(pod)
    for pod, node in placed:
        affinity = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity is not None else None
        for term in affinity.required_during_scheduling_ignored_during_execution if affinity is not None else []:
            neighbours = by_domain[term.topology_key, node.metadata.labels.get(term.topology_key, "")]
            if term.namespace_selector is None and any(_selects(term, pod, other) for other in neighbours):
                yield f"{pod.metadata.key} shares its {term.topology_key} with a pod that it keeps apart from"


def _selects(term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
    return (
        other is not owner
        and other.metadata.namespace in (term.namespaces or [owner.metadata.namespace])
        and compile_selector(term.label_selector).matches(other.metadata.labels)
    )


def _uneven(placed: Placed, nodes: Sequence[Node]) -> Iterator[str]:
    """Hard spread over all nodes, where every pod that counts had to keep to it: others may be anywhere."""
    seen: list[tuple[str, TopologySpreadConstraint]] = []
    for pod, _ in placed:
        for constraint in pod.spec.topology_spread_constraints:
            rule = pod.metadata.namespace, constraint
            if constraint.when_unsatisfiable != "DoNotSchedule" or constraint.node_taints_policy or rule in seen:
                continue
            seen.append(rule)
            counted = [(other, node) for other, node in placed if _counts(other, *rule)]
            if all(constraint in other.spec.topology_spread_constraints for other, _ in counted):
                yield from _skew(counted, nodes, constraint)


def _counts(pod: Pod, namespace: str, constraint: TopologySpreadConstraint) -> bool:
    selector = compile_selector(constraint.label_selector)
    return pod.metadata.namespace == namespace and selector.matches(pod.metadata.labels)


def _skew(counted: Placed, nodes: Sequence[Node], constraint: TopologySpreadConstraint) -> Iterator[str]:
    key = constraint.topology_key
    domains = Counter({node.metadata.labels[key]: 0 for node in nodes if key in node.metadata.labels})
    domains.update(node.metadata.labels.get(key, "") for _, node in counted)
    if max(domains.values()) - min(domains.values()) > constraint.max_skew:
        yield f"pods are spread over {key} as {dict(domains)}, a skew above {constraint.max_skew}"
