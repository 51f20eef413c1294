"""Topology spread constraints as they are evaluated by: selectors compiled, defaults filled in.

Equal pods give equal constraints, which is what lets them share a result.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from koordinator.api.pod import Pod, TopologySpreadConstraint
from koordinator.model.label_selector import CompiledSelector, compile_selector

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"
_HONOR: Final = "Honor"

SYSTEM_DEFAULTS: Final = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY),
)
"""What a pod without constraints of its own gets with ``defaultingType: System``."""


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One constraint of one pod."""

    topology_key: str
    max_skew: int
    min_domains: int
    selector: CompiledSelector
    honors_affinity: bool
    """Only nodes that the pod's node selector and required affinity allow count."""
    honors_taints: bool
    """Only nodes whose taints the pod tolerates count."""
    matches_itself: bool
    """Whether the selector matches the pod itself, so that placing it adds one."""

    @property
    def key(self) -> Hashable:
        """Equal for constraints that ask for the same."""
        return (
            *(self.topology_key, self.max_skew, self.min_domains, self.selector.key),
            *(self.honors_affinity, self.honors_taints, self.matches_itself),
        )


@dataclass(frozen=True, slots=True)
class PodConstraints:
    """All constraints of a pod."""

    hard: tuple[SpreadConstraint, ...] = ()
    """DoNotSchedule."""
    soft: tuple[SpreadConstraint, ...] = ()
    """ScheduleAnyway."""
    needs_all_keys: bool = True
    """Nodes without some topology key of the soft constraints get no score; not so with the system's defaults."""


NO_CONSTRAINTS: Final = PodConstraints()


def own_constraints(pod: Pod) -> PodConstraints:
    """The constraints that the pod itself names. Raises SelectorError."""
    given, labels = pod.spec.topology_spread_constraints, pod.metadata.labels
    compiled = [(each.when_unsatisfiable, _compiled(each, _selector(each, labels), labels)) for each in given]
    return PodConstraints(
        tuple(constraint for action, constraint in compiled if action == DO_NOT_SCHEDULE),
        tuple(constraint for action, constraint in compiled if action == SCHEDULE_ANYWAY),
    )


def default_constraints(
    defaults: Sequence[TopologySpreadConstraint],
    selector: CompiledSelector,
    labels: Mapping[str, str],
    *,
    needs_all_keys: bool,
) -> PodConstraints:
    """What ``defaults`` mean for a pod with ``labels`` that belongs to what ``selector`` selects."""
    compiled = [(each.when_unsatisfiable, _compiled(each, selector, labels)) for each in defaults]
    return PodConstraints(
        tuple(constraint for action, constraint in compiled if action == DO_NOT_SCHEDULE),
        tuple(constraint for action, constraint in compiled if action == SCHEDULE_ANYWAY),
        needs_all_keys,
    )


def constraints_key(pod: Pod, constraints: PodConstraints) -> bytes:
    """All of the pod that its constraints are evaluated by. In bytes, whose hash is computed once."""
    every = (*constraints.hard, *constraints.soft)
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    nodes = sorted(spec.node_selector.items()), required
    honored = (
        nodes if any(each.honors_affinity for each in every) else None,
        spec.tolerations if any(each.honors_taints for each in every) else None,
    )
    return msgspec.json.encode(
        (
            pod.metadata.namespace,
            [each.key for each in constraints.hard],
            # Neither of the two decides about a score.
            [replace(each, min_domains=1, matches_itself=False).key for each in constraints.soft],
            constraints.needs_all_keys,
            honored,
        )
    )


def _selector(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> CompiledSelector:
    own = {key: labels[key] for key in constraint.match_label_keys if key in labels}
    return compile_selector(constraint.label_selector).with_labels(own)


def _compiled(
    constraint: TopologySpreadConstraint, selector: CompiledSelector, labels: Mapping[str, str]
) -> SpreadConstraint:
    return SpreadConstraint(
        topology_key=constraint.topology_key,
        max_skew=constraint.max_skew,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        selector=selector,
        honors_affinity=constraint.node_affinity_policy in (None, _HONOR),
        honors_taints=constraint.node_taints_policy == _HONOR,
        matches_itself=selector.matches(labels),
    )
