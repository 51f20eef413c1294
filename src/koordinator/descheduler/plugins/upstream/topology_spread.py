"""RemovePodsViolatingTopologySpreadConstraint: domains that have more pods than a constraint allows give some away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, Self

from msgspec.structs import replace

from koordinator.api.node import Node
from koordinator.api.pod import Pod, TopologySpreadConstraint
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.framework import BalancePlugin, Eviction, Plan, Snapshot
from koordinator.descheduler.node_fit import TargetNodes, selects_node, tolerates_node
from koordinator.descheduler.plugins.selection import Strategy, StrategyArguments
from koordinator.descheduler.pod_facts import is_terminating
from koordinator.model.label_selector import CompiledSelector, SelectorError, compile_selector

_DO_NOT_SCHEDULE: Final = "DoNotSchedule"
_ACTIONS: Final = (_DO_NOT_SCHEDULE, "ScheduleAnyway")
_HONOR: Final = "Honor"


class RemovePodsViolatingTopologySpreadConstraintArgs(StrategyArguments):
    constraints: list[str] = []
    topology_balance_node_fit: bool = True

    def completed(self, path: str) -> Self:
        super().completed(path)
        for index, action in enumerate(self.constraints):
            if action not in _ACTIONS:
                raise ConfigurationError(f"{path}.constraints[{index}]", action, " or ".join(_ACTIONS))
        return replace(self, constraints=self.constraints or [_DO_NOT_SCHEDULE])


@dataclass(frozen=True, slots=True)
class _Constraint:
    """The constraints of the pods of a namespace; equal constraints of different pods are one."""

    max_skew: int
    topology_key: str
    selector: CompiledSelector
    nodes: frozenset[str]
    """Those that count, by the affinity and the tolerations of the pod where its policies honour them."""


class RemovePodsViolatingTopologySpreadConstraint(Strategy, BalancePlugin):
    name = "RemovePodsViolatingTopologySpreadConstraint"
    args_type = RemovePodsViolatingTopologySpreadConstraintArgs
    args: RemovePodsViolatingTopologySpreadConstraintArgs

    def balance(self, snapshot: Snapshot) -> Plan:
        namespaces: dict[str, list[Pod]] = defaultdict(list)
        for node in snapshot.nodes:
            for pod in snapshot.pods_on(node.metadata.name):
                if self._selects(pod) and not self.handle.evictor.filter(pod):
                    namespaces[pod.metadata.namespace].append(pod)
        chosen: dict[str, tuple[Pod, str]] = {}
        for pods in namespaces.values():
            for constraint in self._constraints(pods, snapshot.nodes):
                reason = f"topology {constraint.topology_key} has a skew of more than {constraint.max_skew}"
                for pod in self._surplus(constraint, pods, snapshot):
                    chosen.setdefault(pod.metadata.uid, (pod, reason))
        for pod, reason in chosen.values():
            if not self.handle.evictor.pre_eviction_filter(pod):
                yield Eviction(pod, reason)

    def _constraints(self, pods: Iterable[Pod], nodes: Sequence[Node]) -> Iterable[_Constraint]:
        found: dict[_Constraint, None] = {}
        for pod in pods:
            for given in pod.spec.topology_spread_constraints:
                constraint = _compiled(given, pod, nodes) if given.when_unsatisfiable in self.args.constraints else None
                if constraint is not None:
                    found[constraint] = None
        return found

    def _surplus(self, constraint: _Constraint, pods: Iterable[Pod], snapshot: Snapshot) -> Sequence[Pod]:
        """Pods that the largest domains give to the smallest, until the constraint holds or the mean is reached."""
        domains = _domains(constraint, pods, {node.metadata.name: node for node in snapshot.nodes})
        sizes = [len(members) for members in domains.values()]
        if not sizes or max(sizes) - min(sizes) <= constraint.max_skew:
            return ()
        mean = sum(sizes) / len(sizes)
        below = {name for name, members in domains.items() if len(members) < mean}
        key = constraint.topology_key
        nodes = [node for node in snapshot.nodes if node.metadata.name in constraint.nodes]
        targets = TargetNodes(snapshot, [node for node in nodes if node.metadata.labels.get(key) in below])
        ordered = [sorted(members, key=_keep_order) for members in sorted(domains.values(), key=len)]
        moved = _moved(ordered, mean, constraint.max_skew, targets)
        return [pod for pod in moved if self._finds_place(pod, targets)]

    def _finds_place(self, pod: Pod, targets: TargetNodes) -> bool:
        if not self.args.topology_balance_node_fit:
            return True
        fits = targets.fitting(pod)
        if not fits.any():
            return False
        targets.book(pod, int(fits.argmax()))
        return True


def _moved(ordered: Sequence[list[Pod]], mean: float, max_skew: int, targets: TargetNodes) -> Sequence[Pod]:
    """Of domains in ascending size: the pods that go from the large ones to the small ones."""
    moved: list[Pod] = []
    low, high = 0, len(ordered) - 1
    while low < high:
        small, large = ordered[low], ordered[high]
        if len(large) <= mean:
            high -= 1
            continue
        skew = len(large) - len(small)
        count = min(ceil(len(large) - mean), ceil(mean - len(small)), ceil((skew - max_skew) / 2))
        if skew <= max_skew or count <= 0:
            low += 1
            continue
        # Those that would find a place in a small domain leave first: they are taken from the end.
        members = sorted(large, key=lambda pod: bool(targets.fitting(pod).any()))
        large[:], leaving = members[:-count], members[-count:]
        small += leaving
        moved += leaving
    return moved


def _compiled(given: TopologySpreadConstraint, pod: Pod, nodes: Sequence[Node]) -> _Constraint | None:
    """None for a selector that cannot be read."""
    try:
        selector = compile_selector(given.label_selector)
    except SelectorError:
        return None
    labels = pod.metadata.labels
    selector = selector.with_labels({key: labels[key] for key in given.match_label_keys if key in labels})
    honours_affinity = (given.node_affinity_policy or _HONOR) == _HONOR
    honours_taints = given.node_taints_policy == _HONOR
    counted = frozenset(
        node.metadata.name
        for node in nodes
        if (not honours_affinity or selects_node(pod, node)) and (not honours_taints or tolerates_node(pod, node))
    )
    return _Constraint(given.max_skew, given.topology_key, selector, counted)


def _domains(constraint: _Constraint, pods: Iterable[Pod], nodes: Mapping[str, Node]) -> dict[str, list[Pod]]:
    """Domain -> the pods that count, also where there are none."""
    key = constraint.topology_key
    found: dict[str, list[Pod]] = {
        nodes[name].metadata.labels[key]: [] for name in sorted(constraint.nodes) if key in nodes[name].metadata.labels
    }
    for pod in pods:
        domain = nodes[pod.spec.node_name].metadata.labels.get(key)
        if domain is not None and not is_terminating(pod) and constraint.selector.matches(pod.metadata.labels):
            found.setdefault(domain, []).append(pod)
    return found


def _keep_order(pod: Pod) -> tuple[bool, bool, int]:
    """The last ones leave first: those that may go anywhere, and of these, as upstream has it, the most important."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    return not (pod.spec.node_selector or affinity), pod.spec.priority is not None, pod.spec.priority or 0
