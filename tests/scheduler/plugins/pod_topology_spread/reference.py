"""Topology spread in plain Python, node by node and pod by pod: slow, and obviously what upstream's documents say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from koordinator.api.meta import LabelSelector, controller_of
from koordinator.api.node import Node
from koordinator.api.pod import Pod, TopologySpreadConstraint
from koordinator.api.workload import ReplicationController, Service, Workload
from koordinator.model.node_selector import required_predicate
from koordinator.model.tolerations import tolerated

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
UNEVEN = "node(s) didn't match pod topology spread constraints"
MISSING = f"{UNEVEN} (missing required label)"
SYSTEM = [
    TopologySpreadConstraint(topology_key=HOSTNAME, max_skew=3, when_unsatisfiable="ScheduleAnyway"),
    TopologySpreadConstraint(topology_key=ZONE, max_skew=5, when_unsatisfiable="ScheduleAnyway"),
]
Selector = Callable[[Mapping[str, str]], bool]


@dataclass
class Machine:
    """A node with its pods."""

    node: Node
    pods: list[Pod] = field(default_factory=list)


@dataclass
class Objects:
    """What pods may belong to, by ``namespace/name``."""

    services: dict[str, Service] = field(default_factory=dict)
    controllers: dict[tuple[str, str], ReplicationController | Workload] = field(default_factory=dict)


@dataclass(frozen=True)
class Constraint:
    given: TopologySpreadConstraint
    requirements: tuple[Selector, ...] | None
    """None matches nothing."""

    @property
    def key(self) -> str:
        return self.given.topology_key

    def matches(self, labels: Mapping[str, str]) -> bool:
        return self.requirements is not None and all(matches(labels) for matches in self.requirements)

    def counted(self, machine: Machine, namespace: str) -> int:
        if self.requirements == ():
            return 0
        return sum(
            1
            for pod in machine.pods
            if pod.metadata.namespace == namespace
            and pod.metadata.deletion_timestamp is None
            and self.matches(pod.metadata.labels)
        )

    def includes(self, pod: Pod, node: Node) -> bool:
        required = required_predicate(pod)
        if self.given.node_affinity_policy != "Ignore" and required is not None and not required(node):
            return False
        hard = [taint for taint in node.spec.taints if taint.effect in ("NoSchedule", "NoExecute")]
        return self.given.node_taints_policy != "Honor" or all(tolerated(pod.spec.tolerations, taint) for taint in hard)


def constraints_of(
    pod: Pod, action: str, defaults: Sequence[TopologySpreadConstraint], objects: Objects
) -> list[Constraint]:
    own = pod.spec.topology_spread_constraints
    if own:
        return [Constraint(each, _own(each, pod)) for each in own if each.when_unsatisfiable == action]
    selector = belongs_to(pod, objects)
    return [Constraint(each, selector) for each in defaults if each.when_unsatisfiable == action] if selector else []


def belongs_to(pod: Pod, objects: Objects) -> tuple[Selector, ...]:
    namespace, labels = pod.metadata.namespace, pod.metadata.labels
    wanted: dict[str, str] = {}
    for service in objects.services.values():
        selector = service.spec.selector
        if service.metadata.namespace == namespace and selector and selector.items() <= labels.items():
            wanted |= selector
    owner = controller_of(pod.metadata)
    kind = (owner.api_version, owner.kind) if owner else None
    controller = objects.controllers.get((owner.kind, f"{namespace}/{owner.name}")) if owner else None
    if isinstance(controller, ReplicationController) and kind == ("v1", "ReplicationController"):
        return _equalities(wanted | controller.spec.selector)
    if isinstance(controller, Workload) and kind in (("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")):
        return (*_equalities(wanted), *(_requirements(controller.spec.selector) or ()))
    return _equalities(wanted)


def _own(constraint: TopologySpreadConstraint, pod: Pod) -> tuple[Selector, ...] | None:
    requirements = _requirements(constraint.label_selector)
    labels = pod.metadata.labels
    more = _equalities({key: labels[key] for key in constraint.match_label_keys if key in labels})
    return None if requirements is None else (*requirements, *more)


def _equalities(labels: Mapping[str, str]) -> tuple[Selector, ...]:
    def equal(key: str, value: str) -> Selector:
        return lambda found: found.get(key) == value

    return tuple(equal(key, value) for key, value in labels.items())


def _requirements(selector: LabelSelector | None) -> tuple[Selector, ...] | None:
    def expression(key: str, operator: str, values: Sequence[str]) -> Selector:
        return {
            "In": lambda labels: key in labels and labels[key] in values,
            "NotIn": lambda labels: key not in labels or labels[key] not in values,
            "Exists": lambda labels: key in labels,
            "DoesNotExist": lambda labels: key not in labels,
        }[operator]

    if selector is None:
        return None
    expressions = [expression(each.key, each.operator, each.values) for each in selector.match_expressions]
    return (*_equalities(selector.match_labels), *expressions)


def filter_results(
    pod: Pod, constraints: Sequence[Constraint], machines: Mapping[str, Machine]
) -> dict[str, list[str]]:
    """Node -> the reason against it, if any."""
    spread: list[dict[str, int]] = []
    for constraint in constraints:
        domains: dict[str, int] = {}
        for machine in machines.values():
            labels = machine.node.metadata.labels
            if all(each.key in labels for each in constraints) and constraint.includes(pod, machine.node):
                name = labels[constraint.key]
                domains[name] = domains.get(name, 0) + constraint.counted(machine, pod.metadata.namespace)
        spread.append(domains)

    def filter_result(labels: Mapping[str, str]) -> list[str]:
        for constraint, domains in zip(constraints, spread, strict=True):
            if constraint.key not in labels:
                return [MISSING]
            minimum = min(domains.values(), default=2**31 - 1)
            if len(domains) < (1 if constraint.given.min_domains is None else constraint.given.min_domains):
                minimum = 0
            itself = 1 if constraint.matches(pod.metadata.labels) else 0
            if domains.get(labels[constraint.key], 0) + itself - minimum > constraint.given.max_skew:
                return [UNEVEN]
        return []

    return {name: filter_result(machine.node.metadata.labels) for name, machine in machines.items()}


def scores(
    pod: Pod,
    constraints: Sequence[Constraint],
    machines: Mapping[str, Machine],
    feasible: Sequence[str],
    *,
    needs_all_keys: bool,
) -> dict[str, int]:
    """Feasible node -> normalized score."""
    labels = {name: machine.node.metadata.labels for name, machine in machines.items()}
    ignored = {
        name for name in machines if needs_all_keys and any(each.key not in labels[name] for each in constraints)
    }
    evaluated = [name for name in feasible if name not in ignored]
    raw = dict.fromkeys(evaluated, 0.0)
    for constraint in constraints:
        domains = {labels[name].get(constraint.key, "") for name in evaluated}
        sizes = dict.fromkeys(domains, 0)
        for name, machine in machines.items():
            domain = labels[name].get(constraint.key, "")
            if name not in ignored and domain in sizes and constraint.includes(pod, machine.node):
                sizes[domain] += constraint.counted(machine, pod.metadata.namespace)
        on_host = constraint.key == HOSTNAME
        weight = math.log((len(evaluated) if on_host else len(domains)) + 2)
        for name in evaluated:
            if constraint.key in labels[name]:
                own = constraint.counted(machines[name], pod.metadata.namespace)
                pods = own if on_host else sizes[labels[name][constraint.key]]
                raw[name] += pods * weight + (constraint.given.max_skew - 1)
    rounded = {name: math.floor(value) + (value - math.floor(value) >= 0.5) for name, value in raw.items()}
    most, least = max(rounded.values(), default=0), min(rounded.values(), default=0)
    found = {name: 100 * (most + least - value) // most if most else 100 for name, value in rounded.items()}
    return {name: found.get(name, 0) for name in feasible}
