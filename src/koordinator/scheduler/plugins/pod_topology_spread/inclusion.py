"""Which nodes count for a constraint: those that the pod could go to, as far as the constraint minds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.model.node_selector import NodePredicate, required_predicate
from koordinator.model.tolerations import NO_EXECUTE, NO_SCHEDULE, tolerated
from koordinator.scheduler.plugins.pod_topology_spread.constraints import SpreadConstraint


class Inclusion:
    """nodeAffinityPolicy and nodeTaintsPolicy for one pod."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod

    def predicate(self, constraint: SpreadConstraint) -> NodePredicate | None:
        """What a node must pass to count for ``constraint``; None when every node does."""
        affinity = self._affinity if constraint.honors_affinity else None
        taints = self._tolerates if constraint.honors_taints else None
        if affinity is None or taints is None:
            return affinity or taints
        return _both(affinity, taints)

    @cached_property
    def _affinity(self) -> NodePredicate | None:
        return required_predicate(self._pod)

    def _tolerates(self, node: Node) -> bool:
        taints = node.spec.taints
        return not taints or all(
            tolerated(self._pod.spec.tolerations, taint)
            for taint in taints
            if taint.effect in (NO_SCHEDULE, NO_EXECUTE)
        )


def _both(left: Callable[[Node], bool], right: Callable[[Node], bool]) -> NodePredicate:
    return lambda node: left(node) and right(node)
