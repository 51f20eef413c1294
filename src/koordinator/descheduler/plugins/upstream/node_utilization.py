"""LowNodeUtilization and HighNodeUtilization: nodes by what their pods request, not by what they use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from koordinator.api.component_configuration import Strict
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.resource_names import CPU, MEMORY, PODS
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.configuration.arguments import Arguments, Namespaces, ResourceThresholds
from koordinator.descheduler.framework import BalancePlugin, Eviction, Evictor, Plan, Remark, Snapshot
from koordinator.descheduler.pod_facts import is_leaving, kubernetes_order
from koordinator.descheduler.requests import amount, requests_of
from koordinator.model.tolerations import tolerated

_ONLY_THRESHOLDING_RESOURCES: Final = "OnlyThresholdingResources"
_Amounts = dict[str, int]


class EvictionLimits(Strict):
    node: int | None = None


class _UtilizationArgs(Arguments):
    lenient = True

    thresholds: ResourceThresholds = {}
    number_of_nodes: int = 0
    evictable_namespaces: Namespaces | None = None

    def completed(self, path: str) -> Self:
        if self.evictable_namespaces is not None and self.evictable_namespaces.include:
            text = "only Exclude namespaces can be set, inclusion is not supported"
            raise ConfigurationError(f"{path}.evictableNamespaces", self.evictable_namespaces.include, text)
        _check_thresholds(self.thresholds, f"{path}.thresholds")
        return self

    @property
    def excluded(self) -> Sequence[str]:
        """Namespaces."""
        return self.evictable_namespaces.exclude if self.evictable_namespaces is not None else ()


class HighNodeUtilizationArgs(_UtilizationArgs):
    eviction_modes: list[str] = []

    def completed(self, path: str) -> Self:
        super().completed(path)
        for index, mode in enumerate(self.eviction_modes):
            if mode != _ONLY_THRESHOLDING_RESOURCES:
                raise ConfigurationError(f"{path}.evictionModes[{index}]", mode, _ONLY_THRESHOLDING_RESOURCES)
        return self


class LowNodeUtilizationArgs(_UtilizationArgs):
    use_deviation_thresholds: bool = False
    target_thresholds: ResourceThresholds = {}
    eviction_limits: EvictionLimits | None = None
    metrics_utilization: dict[str, Any] | None = None

    def completed(self, path: str) -> Self:
        super().completed(path)
        _check_thresholds(self.target_thresholds, f"{path}.targetThresholds")
        if self.thresholds.keys() != self.target_thresholds.keys():
            text = "thresholds and targetThresholds configured different resources"
            raise ConfigurationError(f"{path}.targetThresholds", sorted(self.target_thresholds), text)
        for name, value in self.thresholds.items():
            if value > self.target_thresholds[name] and not self.use_deviation_thresholds:
                text = f"at most targetThresholds[{name}] ({self.target_thresholds[name]:g})"
                raise ConfigurationError(f"{path}.thresholds[{name}]", value, text)
        if self.metrics_utilization is not None:
            text = "none: metrics client not initialized; LowNodeLoad goes by what nodes really use"
            raise ConfigurationError(f"{path}.metricsUtilization", self.metrics_utilization, text)
        return self


def _check_thresholds(thresholds: ResourceThresholds, path: str) -> None:
    if not thresholds:
        raise ConfigurationError(path, thresholds, "no resource threshold is configured")
    for name, percent in thresholds.items():
        if not 0 <= percent <= 100:
            raise ConfigurationError(f"{path}[{name}]", percent, "a percentage from 0 to 100")


class _NodeUse:
    """What is requested of one node, less what has been evicted."""

    def __init__(self, node: Node, pods: Sequence[Pod], names: Iterable[str], now: datetime) -> None:
        self.node = node
        self.pods = pods
        self.used: _Amounts = dict.fromkeys(names, 0)
        self._leaving = dict.fromkeys(self.used, 0)
        for pod in pods:
            leaves = is_leaving(pod, now)
            for name, wanted in _counted(pod, self.used).items():
                self.used[name] += wanted
                self._leaving[name] += wanted if leaves else 0
        allocatable = node.status.allocatable or node.status.capacity
        self._allocatable = {name: amount(name, quantity) for name, quantity in allocatable.items()}

    def release_leaving(self) -> None:
        """Count what terminating pods request as given back: their evictions are under way."""
        for name, wanted in self._leaving.items():
            self.used[name] -= wanted
        self._leaving.clear()

    def percent(self, name: str) -> float:
        """0 for a resource that the node does not have."""
        total = self._allocatable.get(name, 0)
        return self.used[name] / total * 100 if total else 0.0

    def is_below(self, thresholds: Mapping[str, float]) -> bool:
        return all(self.percent(name) <= limit for name, limit in thresholds.items())

    def is_above(self, thresholds: Mapping[str, float]) -> bool:
        return any(self.percent(name) > limit for name, limit in thresholds.items())

    def capped(self, thresholds: Mapping[str, float]) -> _Amounts:
        """What may be requested, in amounts: the threshold's share, everything where there is none."""
        return {
            name: int(float(thresholds[name]) * 0.01 * float(self._allocatable.get(name, 0)))
            if name in thresholds
            else self._allocatable.get(name, 0)
            for name in self.used
        }


def _counted(pod: Pod, names: Iterable[str]) -> _Amounts:
    requests = requests_of(pod)
    return {name: 1 if name == PODS else requests.get(name, 0) for name in names}


@dataclass(frozen=True, slots=True)
class _Rules:
    """How pods are taken from sources while targets have free capacity."""

    evictor: Evictor
    excluded: Sequence[str]
    """Namespaces."""
    allows: Callable[[Pod], bool] = lambda pod: True
    goes_on: Callable[[_NodeUse], bool] = lambda source: True
    """Whether a source still has too much."""
    per_node: int | None = None


def _uses(snapshot: Snapshot, thresholds: Iterable[str]) -> list[_NodeUse]:
    names = sorted({*thresholds, CPU, MEMORY, PODS})
    return [_NodeUse(node, snapshot.pods_on(node.metadata.name), names, snapshot.now) for node in snapshot.nodes]


def _relieve(
    sources: Sequence[_NodeUse], targets: Sequence[_NodeUse], thresholds: Mapping[str, float], rules: _Rules
) -> Plan:
    """Until a source is no longer too full, and while all targets together have free capacity of every resource."""
    free = {name: sum(each.capped(thresholds)[name] - each.used[name] for each in targets) for name in targets[0].used}
    for source in sources:
        pods = [pod for pod in source.pods if rules.allows(pod) and not rules.evictor.filter(pod)]
        evicted = 0
        for pod in sorted(pods, key=kubernetes_order):
            if not rules.goes_on(source) or any(left <= 0 for left in free.values()):
                break
            if rules.per_node is not None and evicted >= rules.per_node:
                break
            if pod.metadata.namespace in rules.excluded or not any(_tolerates(pod, each.node) for each in targets):
                continue
            if rules.evictor.pre_eviction_filter(pod):
                continue
            used = ", ".join(f"{name} {source.percent(name):.2f}%" for name in source.used)
            if not (yield Eviction(pod, f"requests on node {source.node.metadata.name}: {used}")):
                continue
            evicted += 1
            for name, moved in _counted(pod, free).items():
                free[name] -= moved
                source.used[name] -= moved


def _tolerates(pod: Pod, node: Node) -> bool:
    """Taints of any effect, as upstream has it."""
    return all(tolerated(pod.spec.tolerations, taint) for taint in node.spec.taints)


class HighNodeUtilization(BalancePlugin):
    """Empties the least requested nodes, so that pods end up on fewer nodes."""

    name = "HighNodeUtilization"
    args_type = HighNodeUtilizationArgs
    args: HighNodeUtilizationArgs

    def balance(self, snapshot: Snapshot) -> Plan:
        args = self.args
        uses = _uses(snapshot, args.thresholds)
        sources = [each for each in uses if each.is_below(args.thresholds)]
        targets = [each for each in uses if each not in sources and not each.node.spec.unschedulable]
        if len(sources) <= args.number_of_nodes or not targets:
            yield Remark(f"{len(sources)} nodes are underutilized, {len(targets)} could take pods: nothing to do here")
            return
        sources.sort(key=lambda each: sum(each.used.values()))
        rules = _Rules(self.handle.evictor, args.excluded, self._allows)
        yield from _relieve(sources, targets, dict.fromkeys(args.thresholds, 100.0), rules)

    def _allows(self, pod: Pod) -> bool:
        if _ONLY_THRESHOLDING_RESOURCES not in self.args.eviction_modes:
            return True
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        return any(name in container.resources.requests for container in containers for name in self.args.thresholds)


class LowNodeUtilization(BalancePlugin):
    """Takes pods from the most requested nodes for the least requested ones."""

    name = "LowNodeUtilization"
    args_type = LowNodeUtilizationArgs
    args: LowNodeUtilizationArgs

    def balance(self, snapshot: Snapshot) -> Plan:
        args = self.args
        uses = _uses(snapshot, args.thresholds)
        low, high = self._thresholds(uses)
        targets = [each for each in uses if not each.node.spec.unschedulable and each.is_below(low)]
        others = [each for each in uses if each not in targets]
        for each in others:
            each.release_leaving()
        sources = [each for each in others if each.is_above(high)]
        if len(targets) <= args.number_of_nodes or not sources:
            yield Remark(f"{len(targets)} nodes are underutilized, {len(sources)} overutilized: nothing to do here")
            return
        sources.sort(key=lambda each: -sum(each.used.values()))
        limits = {each.node.metadata.name: each.capped(high) for each in sources}

        def is_too_full(source: _NodeUse) -> bool:
            allowed = limits[source.node.metadata.name]
            return any(source.used[name] > allowed[name] for name in source.used)

        per_node = args.eviction_limits.node if args.eviction_limits is not None else None
        rules = _Rules(self.handle.evictor, args.excluded, goes_on=is_too_full, per_node=per_node)
        yield from _relieve(sources, targets, high, rules)

    def _thresholds(self, uses: Sequence[_NodeUse]) -> tuple[ResourceThresholds, ResourceThresholds]:
        """As they are, or around the mean of all nodes."""
        args = self.args
        if not args.use_deviation_thresholds or not uses:
            return args.thresholds, args.target_thresholds
        mean = {name: sum(each.percent(name) for each in uses) / len(uses) for name in args.thresholds}
        return (
            {name: min(max(mean[name] - span, 0.0), 100.0) for name, span in args.thresholds.items()},
            {name: min(max(mean[name] + span, 0.0), 100.0) for name, span in args.target_thresholds.items()},
        )
