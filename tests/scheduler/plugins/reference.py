"""Every Filter and Score once more: node by node, slow, and plain enough to be read against the specification."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from typing import Any

from koordinator.api.node import Node, Taint
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import NodeAffinity, NodeSelectorTerm, Pod, Toleration
from tests.scheduler.plugins.reference_requests import allocatable_of, non_zero_of, requests_of, total

FilterResult = list[tuple[str, bool]]
"""(reason, unresolvable); empty when the node passes."""


@dataclass
class Machine:
    """A node with its pods and its last report."""

    node: Node
    pods: list[Pod] = field(default_factory=list)
    metric: NodeMetric | None = None
    updated: float = 0.0
    """The time of the last report that had one, since the NodeMetric is there."""


# Filters.


def fit(machine: Machine, pod: Pod, ignored: Collection[str] = (), groups: Collection[str] = ()) -> FilterResult:
    """Only extended resources can be ignored; those of Kubernetes' own domains are not extended."""
    capacity = allocatable_of(machine.node)
    reasons = []
    unresolvable = False
    if len(machine.pods) + 1 > capacity.get("pods", 0):
        reasons.append("Too many pods")
    wanted = requests_of(pod)
    first = [name for name in ("cpu", "memory", "ephemeral-storage") if name in wanted]
    others = [name for name in wanted if name not in first]
    used = [requests_of(other) for other in machine.pods]
    for name in first + others:
        prefix, slash, _ = name.partition("/")
        extended = bool(slash) and "kubernetes.io/" not in name
        if extended and (name in ignored or prefix in groups):
            continue
        if wanted[name] > 0 and wanted[name] > capacity.get(name, 0) - total(used, name):
            reasons.append(f"Insufficient {name}")
            if wanted[name] > capacity.get(name, 0):
                unresolvable = True
    return [(reason, unresolvable) for reason in reasons]


def unschedulable(machine: Machine, pod: Pod) -> FilterResult:
    taint = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    if machine.node.spec.unschedulable and not any(covers(each, taint) for each in pod.spec.tolerations):
        return [("node(s) were unschedulable", True)]
    return []


def covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def taints(machine: Machine, pod: Pod) -> FilterResult:
    for taint in machine.node.spec.taints:
        if taint.effect == "PreferNoSchedule":
            continue
        if not any(covers(toleration, taint) for toleration in pod.spec.tolerations):
            return [("node(s) had untolerated taint(s)", True)]
    return []


def affinity(machine: Machine, pod: Pod, added: NodeAffinity | None = None) -> FilterResult:
    enforced = added.required_during_scheduling_ignored_during_execution if added else None
    conflict = names_conflict(pod)
    if conflict:
        return [("pod affinity terms conflict", True)]
    if enforced and not any(term_matches(machine.node, term) for term in enforced.node_selector_terms):
        return [("node(s) didn't match scheduler-enforced node affinity", True)]
    labels = machine.node.metadata.labels
    matches = all(labels.get(key) == value for key, value in pod.spec.node_selector.items())
    node_affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity else None
    if required is not None:
        matches = matches and any(term_matches(machine.node, term) for term in required.node_selector_terms)
    return [] if matches else [("node(s) didn't match Pod's node affinity/selector", True)]


def names_conflict(pod: Pod) -> bool:
    """Whether every term requests nodes by name and none of them for any."""
    node_affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity else None
    if required is None or not required.node_selector_terms:
        return False
    for term in required.node_selector_terms:
        wanted = [set(each.values) for each in term.match_fields if each.operator == "In"]
        if not wanted or set.intersection(*wanted):
            return False
    return True


def term_matches(node: Node, term: NodeSelectorTerm) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    for field_requirement in term.match_fields:
        is_named = node.metadata.name == field_requirement.values[0]
        if is_named != (field_requirement.operator == "In"):
            return False
    for requirement in term.match_expressions:
        value = node.metadata.labels.get(requirement.key)
        if requirement.operator == "In" and value not in requirement.values:
            return False
        if requirement.operator == "NotIn" and value in requirement.values:
            return False
        if requirement.operator == "Exists" and value is None:
            return False
        if requirement.operator == "DoesNotExist" and value is not None:
            return False
        if requirement.operator in ("Gt", "Lt"):
            if value is None or not value.isdigit():
                return False
            bound = int(requirement.values[0])
            if not (int(value) > bound if requirement.operator == "Gt" else int(value) < bound):
                return False
    return True


def ports(machine: Machine, pod: Pod) -> FilterResult:
    for mine in wanted_ports(pod):
        for other in machine.pods:
            for theirs in wanted_ports(other):
                same_address = mine[0] == theirs[0] or "0.0.0.0" in (mine[0], theirs[0])
                if same_address and mine[1:] == theirs[1:]:
                    return [("node(s) didn't have free ports for the requested pod ports", False)]
    return []


def wanted_ports(pod: Pod) -> list[tuple[str, str, int]]:
    sidecars = [container for container in pod.spec.init_containers if container.restart_policy == "Always"]
    return [
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
        for container in (*pod.spec.containers, *sidecars)
        for port in container.ports
        if port.host_port
    ]


# Scores.


def least_allocated(machine: Machine, pod: Pod, weights: dict[str, int]) -> int:
    return _allocation_score(
        machine, pod, weights, lambda used, all_: (all_ - used) * 100 // all_ if used <= all_ else 0
    )


def most_allocated(machine: Machine, pod: Pod, weights: dict[str, int]) -> int:
    return _allocation_score(machine, pod, weights, lambda used, all_: min(used, all_) * 100 // all_)


def requested_to_capacity_ratio(
    machine: Machine, pod: Pod, weights: dict[str, int], shape: Sequence[tuple[int, int]]
) -> int:
    """``shape``: (utilisation, score out of 10) at the corners. What scores nothing does not count in the mean."""
    score = weight_sum = 0
    for name, weight, used, capacity in _scored(machine, pod, weights):
        del name
        utilisation = 100 if used > capacity else used * 100 // capacity
        one = _on_broken_line(utilisation, [(x, y * 10) for x, y in shape])
        if one > 0:
            score += one * weight
            weight_sum += weight
    return math.floor(score / weight_sum + 0.5) if weight_sum else 0


def _on_broken_line(x: int, corners: Sequence[tuple[int, int]]) -> int:
    if x <= corners[0][0]:
        return corners[0][1]
    for (left, low), (right, high) in pairwise(corners):
        if x <= right:
            return low + math.trunc((high - low) * (x - left) / (right - left))
    return corners[-1][1]


def _scored(machine: Machine, pod: Pod, weights: dict[str, int]) -> Iterator[tuple[str, int, int, int]]:
    """(resource, weight, used with the pod, capacity) of what the node has and the pod is scored for."""
    for name, weight in weights.items():
        capacity = allocatable_of(machine.node).get(name, 0)
        if capacity == 0 or name == "pods" or (not_of_every_node(name) and requests_of(pod).get(name, 0) == 0):
            continue
        if name in ("cpu", "memory"):
            used = non_zero_of(pod)[name] + sum(non_zero_of(other)[name] for other in machine.pods)
        else:
            used = requests_of(pod).get(name, 0) + total([requests_of(other) for other in machine.pods], name)
        yield name, weight, used, capacity


def not_of_every_node(name: str) -> bool:
    return "/" in name or name.startswith("hugepages-")


def _allocation_score(machine: Machine, pod: Pod, weights: dict[str, int], function: Any) -> int:
    score = weight_sum = 0
    for _, weight, used, capacity in _scored(machine, pod, weights):
        score += function(used, capacity) * weight
        weight_sum += weight
    return score // weight_sum if weight_sum else 0


def balanced(machine: Machine, pod: Pod, names: Sequence[str]) -> int | None:
    """None: the plugin has nothing to say about this pod."""
    wanted = requests_of(pod)
    if not any(wanted.get(name, 0) for name in names if name != "pods"):
        return None
    fractions = []
    for name in names:
        capacity = allocatable_of(machine.node).get(name, 0)
        if capacity == 0 or name == "pods" or (not_of_every_node(name) and wanted.get(name, 0) == 0):
            continue
        used = wanted.get(name, 0) + total([requests_of(other) for other in machine.pods], name)
        fractions.append(min(used / capacity, 1.0))
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        mean = added(fractions) / len(fractions)
        deviation = math.sqrt(added([(each - mean) ** 2 for each in fractions]) / len(fractions))
    return int((1 - deviation) * 100)


def added(numbers: Sequence[float]) -> float:
    """One after the other, rounding each time; ``sum`` is more exact than that since Python 3.12."""
    return reduce(operator.add, numbers)


def soft_taints(machine: Machine, pod: Pod) -> int:
    tolerations = [each for each in pod.spec.tolerations if each.effect in ("", "PreferNoSchedule")]
    return sum(
        1
        for taint in machine.node.spec.taints
        if taint.effect == "PreferNoSchedule" and not any(covers(each, taint) for each in tolerations)
    )


def preferred(machine: Machine, pod: Pod, added: NodeAffinity | None = None) -> int:
    affinities = [added, pod.spec.affinity.node_affinity if pod.spec.affinity else None]
    terms = [
        term
        for each in affinities
        if each is not None
        for term in each.preferred_during_scheduling_ignored_during_execution
    ]
    return sum(term.weight for term in terms if term_matches(machine.node, term.preference))
