"""Strategies that look at whether a pod may still be where it is: RemovePodsViolatingNodeAffinity, …NodeTaints and
…InterPodAntiAffinity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self

from koordinator.api.node import Node, Taint
from koordinator.api.pod import NodeAffinity, Pod
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.framework import DeschedulePlugin, Eviction, Plan, Snapshot
from koordinator.descheduler.node_fit import TargetNodes, anti_affinity, selects_node
from koordinator.descheduler.plugins.selection import Strategy, StrategyArguments
from koordinator.descheduler.pod_facts import is_terminating, kubernetes_order
from koordinator.model.node_selector import preferred_score
from koordinator.model.tolerations import NO_SCHEDULE, PREFER_NO_SCHEDULE, taint_text, tolerated

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class RemovePodsViolatingNodeAffinityArgs(StrategyArguments):
    node_affinity_type: list[str] = []

    def completed(self, path: str) -> Self:
        super().completed(path)
        if not self.node_affinity_type:
            raise ConfigurationError(f"{path}.nodeAffinityType", [], f"{_REQUIRED}, {_PREFERRED} or both")
        for index, kind in enumerate(self.node_affinity_type):
            if kind not in (_REQUIRED, _PREFERRED):
                raise ConfigurationError(f"{path}.nodeAffinityType[{index}]", kind, f"{_REQUIRED} or {_PREFERRED}")
        return self


class RemovePodsViolatingNodeAffinity(Strategy, DeschedulePlugin):
    """Evicts pods whose node affinity another node would suit, or suit better."""

    name = "RemovePodsViolatingNodeAffinity"
    args_type = RemovePodsViolatingNodeAffinityArgs
    args: RemovePodsViolatingNodeAffinityArgs

    def deschedule(self, snapshot: Snapshot) -> Plan:
        targets: TargetNodes | None = None
        for pod, reason in self._misplaced(snapshot):
            targets = targets or TargetNodes(snapshot, snapshot.nodes)
            fits = targets.fitting(pod)
            if fits.any() and (yield Eviction(pod, reason)):
                targets.book(pod, int(fits.argmax()))

    def _misplaced(self, snapshot: Snapshot) -> Iterable[tuple[Pod, str]]:
        for kind in self.args.node_affinity_type:
            for node in snapshot.nodes:
                for pod in snapshot.pods_on(node.metadata.name):
                    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
                    reason = _why_misplaced(kind, affinity, pod, node, snapshot.nodes) if affinity else ""
                    if reason and self._allows(pod):
                        yield pod, reason


def _why_misplaced(kind: str, affinity: NodeAffinity, pod: Pod, node: Node, nodes: Sequence[Node]) -> str:
    """Empty where the pod is as well off as anywhere."""
    if kind == _REQUIRED:
        is_violated = affinity.required_during_scheduling_ignored_during_execution and not selects_node(pod, node)
        return f"pod's required node affinity does not match node {node.metadata.name}" if is_violated else ""
    score = preferred_score(affinity.preferred_during_scheduling_ignored_during_execution)
    if score is None:
        return ""
    own, best = score(node), max(score(each) for each in nodes)
    if best <= own:
        return ""
    return f"pod's preferred node affinity has weight {own} on node {node.metadata.name}, and {best} elsewhere"


class RemovePodsViolatingNodeTaintsArgs(StrategyArguments):
    include_prefer_no_schedule: bool = False
    excluded_taints: list[str] = []
    included_taints: list[str] = []
    """Each ``key`` or ``key=value``."""

    def completed(self, path: str) -> Self:
        super().completed(path)
        if self.excluded_taints and self.included_taints:
            raise ConfigurationError(f"{path}.includedTaints", self.included_taints, "not beside excludedTaints")
        return self


class RemovePodsViolatingNodeTaints(Strategy, DeschedulePlugin):
    name = "RemovePodsViolatingNodeTaints"
    args_type = RemovePodsViolatingNodeTaintsArgs
    args: RemovePodsViolatingNodeTaintsArgs

    def deschedule(self, snapshot: Snapshot) -> Plan:
        for node in snapshot.nodes:
            taints = [taint for taint in node.spec.taints if self._counts(taint)]
            for pod in snapshot.pods_on(node.metadata.name) if taints else ():
                bad = [taint_text(taint) for taint in taints if not tolerated(pod.spec.tolerations, taint)]
                if bad and self._allows(pod):
                    yield Eviction(pod, f"pod does not tolerate {', '.join(bad)} of node {node.metadata.name}")

    def _counts(self, taint: Taint) -> bool:
        effects = (NO_SCHEDULE, PREFER_NO_SCHEDULE) if self.args.include_prefer_no_schedule else (NO_SCHEDULE,)
        names = {taint.key, f"{taint.key}={taint.value}"} if taint.value else {taint.key}
        if taint.effect not in effects or not names.isdisjoint(self.args.excluded_taints):
            return False
        return not self.args.included_taints or not names.isdisjoint(self.args.included_taints)


class RemovePodsViolatingInterPodAntiAffinity(Strategy, DeschedulePlugin):
    """The least important pods of each node first; a pod that was evicted or is terminating no longer conflicts."""

    name = "RemovePodsViolatingInterPodAntiAffinity"
    args_type = StrategyArguments

    def deschedule(self, snapshot: Snapshot) -> Plan:
        nodes = {node.metadata.name: node for node in snapshot.nodes}
        by_node = {name: [pod for pod in snapshot.pods_on(name) if self._selects(pod)] for name in nodes}
        left = {pod.metadata.uid: pod for pods in by_node.values() for pod in pods if not is_terminating(pod)}
        for pods in by_node.values():
            for pod in sorted(pods, key=kubernetes_order):
                rival = _rival(pod, left.values(), nodes)
                if rival is None or not self._allows(pod):
                    continue
                if (yield Eviction(pod, f"pod's anti-affinity matches pod {rival.metadata.key}")):
                    left.pop(pod.metadata.uid, None)


def _rival(pod: Pod, others: Iterable[Pod], nodes: Mapping[str, Node]) -> Pod | None:
    """Another pod that one of the required terms wants to be away from, in the same place by the term's topology."""
    here = nodes[pod.spec.node_name].metadata
    for selector, namespaces, key in anti_affinity(pod):
        for other in others:
            if other.metadata.name == pod.metadata.name or other.metadata.namespace not in namespaces:
                continue
            there, domain = nodes[other.spec.node_name].metadata, here.labels.get(key)
            is_near = here.name == there.name or (domain is not None and domain == there.labels.get(key))
            if is_near and selector.matches(other.metadata.labels):
                return other
    return None
