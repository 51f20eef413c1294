"""Whether a scheduler's placements are right: every pod bound once, no node too full, every rule of the pods kept."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.pod_mixes import HOSTNAME, ZONE, Document
from koordinator.api.quantity import Quantity


@dataclass(frozen=True, slots=True)
class Faults:
    """Counts; all zero when everything is right."""

    not_bound: int
    bound_elsewhere_later: int
    """Pods that were seen on a second node."""
    nodes_over_allocatable: int
    rules_broken: int
    """Zone affinity, hostname anti-affinity, topology spread and Reservations; 0 for one who does not look at them."""
    events_missing: int

    @property
    def any(self) -> bool:
        return bool(
            self.not_bound
            or self.bound_elsewhere_later
            or self.nodes_over_allocatable
            or self.rules_broken
            or self.events_missing
        )


def over_allocatable(nodes: Iterable[Document], pods: Iterable[Document], targets: Mapping[str, str]) -> list[str]:
    """Nodes whose pods request more than there is. ``targets``: pod name -> node, for pods without ``nodeName``."""
    requested: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        spec = pod["spec"]
        target = spec.get("nodeName") or targets.get(pod["metadata"]["name"])
        if target is None:
            continue
        requested[target]["pods"] += _nanos("1")
        for container in spec["containers"]:
            for resource, amount in container["resources"]["requests"].items():
                requested[target][resource] += _nanos(amount)
    return [name for name, allocatable in _allocatable(nodes) if _exceeds(requested[name], allocatable)]


def broken_rules(pods: Sequence[Document], targets: Mapping[str, str], zones: Mapping[str, str]) -> list[str]:
    """What pods request and have not got, for the rules that ``pod_mixes`` writes. ``zones``: node -> zone."""
    placed = [(pod, targets[pod["metadata"]["name"]]) for pod in pods if pod["metadata"]["name"] in targets]
    return [*_wrong_zones(placed, zones), *_shared_nodes(placed), *_uneven_spread(placed, zones)]


def without_reservation(pods: Iterable[Document], using: Collection[str]) -> list[str]:
    """Pods that own Reservations, which have capacity for all of them, and are not in ``using``: took from none."""
    owners = [pod["metadata"]["name"] for pod in pods if "team" in pod["metadata"].get("labels", {})]
    return [f"{name} uses no Reservation" for name in owners if name not in using]


def _wrong_zones(placed: Iterable[tuple[Document, str]], zones: Mapping[str, str]) -> list[str]:
    wrong = []
    for pod, target in placed:
        rule = pod["spec"].get("affinity", {}).get("nodeAffinity")
        if rule is None:
            continue
        (term,) = rule["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        (expression,) = term["matchExpressions"]
        assert expression["key"] == ZONE
        if zones[target] not in expression["values"]:
            wrong.append(f"{pod['metadata']['name']} is in {zones[target]}")
    return wrong


def _shared_nodes(placed: Iterable[tuple[Document, str]]) -> list[str]:
    by_node: Counter[str] = Counter()
    for pod, target in placed:
        rule = pod["spec"].get("affinity", {}).get("podAntiAffinity")
        if rule is not None:
            (term,) = rule["requiredDuringSchedulingIgnoredDuringExecution"]
            assert term["topologyKey"] == HOSTNAME
            by_node[target] += 1
    return [f"{count} pods that keep apart are on {name}" for name, count in by_node.items() if count > 1]


def _uneven_spread(placed: Iterable[tuple[Document, str]], zones: Mapping[str, str]) -> list[str]:
    by_zone = Counter(dict.fromkeys(zones.values(), 0))
    skew = 0
    for pod, target in placed:
        for constraint in pod["spec"].get("topologySpreadConstraints", ()):
            assert constraint["topologyKey"] == ZONE
            skew = constraint["maxSkew"]
            by_zone[zones[target]] += 1
    uneven = skew and max(by_zone.values()) - min(by_zone.values()) > skew
    return [f"pods are spread {dict(by_zone)}"] if uneven else []


def _allocatable(nodes: Iterable[Document]) -> Iterable[tuple[str, dict[str, int]]]:
    for node in nodes:
        amounts = node["status"]["allocatable"].items()
        yield node["metadata"]["name"], {resource: _nanos(amount) for resource, amount in amounts}


def _exceeds(requested: Counter[str], allocatable: Mapping[str, int]) -> bool:
    return any(amount > allocatable.get(resource, 0) for resource, amount in requested.items())


def _nanos(amount: str) -> int:
    return Quantity.parse(amount).nanos
