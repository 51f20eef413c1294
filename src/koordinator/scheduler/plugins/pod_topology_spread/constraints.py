"""Topology spread constraints as they are evaluated by: selectors compiled, defaults filled in.

Equal pods give equal constraints, which is what lets them share a result.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from koordinator.api.node import Node
from koordinator.api.pod import Pod, TopologySpreadConstraint
from koordinator.model.label_selector import CompiledSelector, compile_selector
from koordinator.model.node_selector import required_affinity
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.pod_info import PodInfo

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
        """Equal for equal constraints."""
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


Selected = Iterable[tuple[TopologySpreadConstraint, CompiledSelector]]
"""Constraints, each with the selector of the pods that it counts."""


def own_constraints(pod: Pod) -> Selected:
    """The constraints that the pod itself names. Raises SelectorError."""
    labels = pod.metadata.labels
    for each in pod.spec.topology_spread_constraints:
        own = {key: labels[key] for key in each.match_label_keys if key in labels}
        yield each, compile_selector(each.label_selector).with_labels(own)


def pod_constraints(given: Selected, labels: Mapping[str, str], *, needs_all_keys: bool = True) -> PodConstraints:
    """What ``given`` means for a pod with ``labels``. Raises what ``given`` raises."""
    by_action: dict[str, list[SpreadConstraint]] = {DO_NOT_SCHEDULE: [], SCHEDULE_ANYWAY: []}
    for each, selector in given:
        constraint = SpreadConstraint(
            topology_key=each.topology_key,
            max_skew=each.max_skew,
            min_domains=1 if each.min_domains is None else each.min_domains,
            selector=selector,
            honors_affinity=each.node_affinity_policy in (None, _HONOR),
            honors_taints=each.node_taints_policy == _HONOR,
            matches_itself=selector.matches(labels),
        )
        by_action.setdefault(each.when_unsatisfiable, []).append(constraint)
    return PodConstraints(tuple(by_action[DO_NOT_SCHEDULE]), tuple(by_action[SCHEDULE_ANYWAY]), needs_all_keys)


def constraints_key(pod: Pod, constraints: PodConstraints) -> bytes:
    """All of the pod that its constraints are evaluated by. In bytes, whose hash is computed once."""
    every = (*constraints.hard, *constraints.soft)
    spec = pod.spec
    nodes = sorted(spec.node_selector.items()), required_affinity(pod)
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


# Whether an event may make a pod schedulable that its DoNotSchedule constraints rejected (upstream: queueing hints).

_POD_EVENTS: Final = frozenset({EventKind.POD_ADD, EventKind.POD_DELETE, EventKind.POD_LABEL, EventKind.POD_UPDATE})
_NODE_EVENTS: Final = frozenset({EventKind.NODE_ADD, EventKind.NODE_DELETE, EventKind.NODE_LABEL, EventKind.NODE_TAINT})
EVENTS_TO_REGISTER: Final = _POD_EVENTS | _NODE_EVENTS
_Constraints = Sequence[SpreadConstraint]


def queueing_hint(pod: PodInfo, constraints: _Constraints, event: ClusterEvent) -> bool:
    """True in doubt: for other kinds of event, and for those that do not say what they are about."""
    if event.old is None and event.new is None:
        return True
    if event.kind in _POD_EVENTS:
        return _pod_helps(pod, constraints, event.old, event.new)
    if event.kind in _NODE_EVENTS:
        return _node_helps(constraints, event.old, event.new)
    return True


def _pod_helps(pod: PodInfo, constraints: _Constraints, old: PodInfo | None, new: PodInfo | None) -> bool:
    """A pod in another namespace counts for nothing; one that changes must begin or cease to match."""
    namespace = pod.pod.metadata.namespace
    if any(each is not None and each.pod.metadata.namespace != namespace for each in (old, new)):
        return False
    if old is None or new is None:
        only = old or new
        return only is not None and any(each.selector.matches(only.pod.metadata.labels) for each in constraints)
    tolerates_else = new.uid == pod.uid and old.pod.spec.tolerations != new.pod.spec.tolerations
    if tolerates_else and any(each.honors_taints for each in constraints):
        return True
    before, after = old.pod.metadata.labels, new.pod.metadata.labels
    return before != after and any(
        each.selector.matches(before) != each.selector.matches(after) for each in constraints
    )


def _node_helps(constraints: _Constraints, old: Node | None, new: Node | None) -> bool:
    """Only nodes with all topology keys count; one that stays so must change domain or taints."""
    counted = old is not None and _has_keys(old.metadata.labels, constraints)
    counts = new is not None and _has_keys(new.metadata.labels, constraints)
    if old is None or new is None or counted != counts:
        return counted or counts
    return counts and (
        old.spec.taints != new.spec.taints
        or any(old.metadata.labels[each.topology_key] != new.metadata.labels[each.topology_key] for each in constraints)
    )


def _has_keys(labels: Mapping[str, str], constraints: _Constraints) -> bool:
    return all(constraint.topology_key in labels for constraint in constraints)
