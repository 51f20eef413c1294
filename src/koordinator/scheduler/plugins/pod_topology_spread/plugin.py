"""The PodTopologySpread plugin: the constraints of each pod, the default selector of pods without any, which is that of
their Services and their controller (upstream: DefaultSelector), and the extension points that evaluate them.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

from koordinator.api.kinds import REPLICA_SETS, REPLICATION_CONTROLLERS, SERVICES, STATEFUL_SETS, Kind
from koordinator.api.meta import Object, OwnerReference, controller_of
from koordinator.api.node import Node
from koordinator.api.pod import Pod, TopologySpreadConstraint
from koordinator.api.workload import Service
from koordinator.base.groups import Groups
from koordinator.model.label_selector import EVERYTHING, CompiledSelector, SelectorError, compile_selector
from koordinator.scheduler.engine.columns import Aspect
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.framework import (
    SKIP_FILTER,
    SKIP_SCORE,
    EventHandler,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
)
from koordinator.scheduler.engine.plugin_forms import CrossNodeFilterState, CrossNodeScoreState
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.plugins.node_labels import Topologies
from koordinator.scheduler.plugins.pod_topology_spread.constraints import (
    EVENTS_TO_REGISTER,
    NO_CONSTRAINTS,
    SYSTEM_DEFAULTS,
    PodConstraints,
    constraints_key,
    own_constraints,
    pod_constraints,
    queueing_hint,
)
from koordinator.scheduler.plugins.pod_topology_spread.hard_spread import (
    MISSING_KEY,
    READS,
    TOO_UNEVEN,
    ClassSpread,
    HardSpread,
)
from koordinator.scheduler.plugins.pod_topology_spread.soft_spread import SoftSpread
from koordinator.scheduler.plugins.pod_topology_spread.spread import Spread

READ: Final[tuple[Kind[Any], ...]] = (SERVICES, REPLICATION_CONTROLLERS, REPLICA_SETS, STATEFUL_SETS)
"""The kinds from which the selectors are derived."""
_VERSIONS: Final = itertools.count()
"""Of all instances: the memos of pods have those of a plugin before it was reset, too."""
_SELECTOR_MEMO: Final = "PodTopologySpread/belongs"
_CONTROLLERS: Final[Mapping[tuple[str, str], Kind[Any]]] = {
    ("v1", "ReplicationController"): REPLICATION_CONTROLLERS,
    ("apps/v1", "ReplicaSet"): REPLICA_SETS,
    ("apps/v1", "StatefulSet"): STATEFUL_SETS,
}


class DefaultSelectors:
    """Computes and caches the default selectors of pods. It indexes Services by one of the labels that they select, so
    that few of them are compared with a pod."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self.changes = self._since = next(_VERSIONS)
        """Increases whenever any selector may have changed."""
        self._versions: dict[str, int] = {}
        self._services = Groups[tuple[str, str, str], str, Service]()

    def on_object(self, kind: Kind[Any], key: str, old: Object | None, new: Object | None) -> None:
        """An object of any kind was added, updated or deleted."""
        if kind not in READ or _selector_of(old) == _selector_of(new):
            return
        known = new or old
        assert known is not None
        self._versions[known.metadata.namespace] = self.changes = next(_VERSIONS)
        self._view.concerns_version += 1
        if kind is SERVICES:
            for service in (old, new):
                if isinstance(service, Service) and service.spec.selector:
                    # Any label of the selector will do, since every pod that the service selects has all of them.
                    place = service.metadata.namespace, *min(service.spec.selector.items())
                    if service is new:
                        self._services.put(place, key, service)
                    else:
                        self._services.take(place, key)

    def version(self, namespace: str) -> int:
        """Increases whenever selectors of pods in ``namespace`` may have changed."""
        return self._versions.get(namespace, self._since)

    def selector(self, pod: PodInfo) -> CompiledSelector:
        """The default selector of the pod; empty if it has no Service and no controller."""
        owner = controller_of(pod.pod.metadata)
        valid = self.version(pod.pod.metadata.namespace), owner
        known = pod.memo.get(_SELECTOR_MEMO)
        if known is not None and known[0] == valid:
            selector: CompiledSelector = known[1]
            return selector
        selector = self._of_services(pod.pod)
        if owner is not None:
            selector = self._of_controller(pod.pod.metadata.namespace, owner, selector)
        pod.memo[_SELECTOR_MEMO] = valid, selector
        return selector

    def _of_services(self, pod: Pod) -> CompiledSelector:
        own, labels = pod.metadata.labels.items(), dict[str, str]()
        for label in own:
            for service in self._services.of((pod.metadata.namespace, *label)).values():
                wanted = service.spec.selector
                if wanted.items() <= own:
                    labels.update(wanted)
        return EVERYTHING.with_labels(labels)

    def _of_controller(self, namespace: str, owner: OwnerReference, services: CompiledSelector) -> CompiledSelector:
        """``services`` joined with the controller's selector; unchanged if the controller is unknown or its selector
        invalid."""
        kind = _CONTROLLERS.get((owner.api_version, owner.kind))
        controller = self._view.objects_of(kind).get(f"{namespace}/{owner.name}") if kind is not None else None
        if controller is None or controller.spec.selector is None:
            return services
        if kind is REPLICATION_CONTROLLERS:
            return EVERYTHING.with_labels({**services.required, **controller.spec.selector})
        try:
            return services.also(compile_selector(controller.spec.selector))
        except SelectorError:
            return services


def _selector_of(obj: Any) -> object:
    return obj.spec.selector if obj is not None else None


_TOO_UNEVEN: Final = "node(s) didn't match pod topology spread constraints"
_REASONS: Final[Mapping[int, Reason]] = {
    MISSING_KEY: Reason(f"{_TOO_UNEVEN} (missing required label)", unresolvable=True),
    TOO_UNEVEN: Reason(_TOO_UNEVEN),
}
_CONSTRAINTS_MEMO: Final = "PodTopologySpread/constraints"
_KEY_MEMO: Final = "PodTopologySpread/key"


class PodTopologySpread(PreFilterPlugin, CrossNodeFilterState, CrossNodeScoreState, EventHandler, Explainer):
    name = "PodTopologySpread"
    watches: ClassVar[tuple[Kind[Any], ...]] = READ
    reads: ClassVar[tuple[Aspect, ...]] = READS
    score_reads: ClassVar[tuple[Aspect, ...]] = READS
    monotone: ClassVar[bool] = True

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._by_system = args.defaulting_type == "System"
        self._defaults: Sequence[TopologySpreadConstraint] = (
            SYSTEM_DEFAULTS if self._by_system else args.default_constraints
        )
        self.topologies = Topologies(view.columns)
        """The domains of nodes, for all classes of pods."""
        self.selectors = DefaultSelectors(view)
        self._shared: WeakValueDictionary[bytes, HardSpread] = WeakValueDictionary()
        """Constraints key -> Filter results, kept as long as some class of pods uses them. Classes share them if they
        differ only in what the constraints do not depend on."""

    def on_node(self, row: int, node: Node) -> None:
        self.topologies.set(row, node)

    def on_node_removed(self, row: int, name: str) -> None:
        self.topologies.set(row, None)

    def on_object(self, kind: Kind[Any], key: str, old: Object | None, new: Object | None) -> None:
        self.selectors.on_object(kind, key, old, new)

    def class_key(self, pod: PodInfo) -> Hashable:
        if not pod.pod.spec.topology_spread_constraints:
            return None
        return constraints_key(pod.pod, self.constraints(pod))

    def concerns(self, pod: PodInfo) -> bool:
        """Whether it has default constraints: it needs a Service or a controller for that."""
        if not self._defaults or pod.pod.spec.topology_spread_constraints:
            return False
        return self.constraints(pod) is not NO_CONSTRAINTS

    def context_key(self, pod: PodInfo) -> Hashable:
        """The key of the pod's default constraints, which depend on Services and controllers; None if it has none."""
        if not self._defaults or pod.pod.spec.topology_spread_constraints:
            return None
        known: tuple[int, PodConstraints, bytes | None] | None = pod.memo.get(_KEY_MEMO)
        if known is not None and known[0] == self.selectors.changes:
            return known[2]
        constraints = self.constraints(pod)
        if known is not None and known[1] is constraints:
            key = known[2]
        else:
            key = None if constraints is NO_CONSTRAINTS else constraints_key(pod.pod, constraints)
        pod.memo[_KEY_MEMO] = self.selectors.changes, constraints, key
        return key

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        hard = self.constraints(pod).hard
        if not hard:
            return SKIP_FILTER
        key = constraints_key(pod.pod, PodConstraints(hard))
        shared = self._shared.get(key)
        if shared is None:
            spread = Spread(self.view, self.topologies, pod, hard)
            shared = self._shared[key] = HardSpread(self.view.columns, spread, hard)
        return PreFilterResult(ClassSpread(shared))

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (_REASONS[code],)

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        node = self.view.columns.nodes[row]
        return state.lacks(row, node) if node is not None else ()

    def pre_score(self, pod: PodInfo) -> Any:
        constraints = self.constraints(pod)
        soft, all_keys = constraints.soft, constraints.needs_all_keys
        if not soft:
            return SKIP_SCORE
        spread = Spread(self.view, self.topologies, pod, soft, needs_all_keys=all_keys)
        return SoftSpread(self.view.columns, spread, soft, needs_all_keys=all_keys)

    def events_to_register(self) -> frozenset[str]:
        return EVENTS_TO_REGISTER

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        try:
            return queueing_hint(pod, self.constraints(pod).hard, event)
        except SelectorError:
            return True

    def constraints(self, pod: PodInfo) -> PodConstraints:
        """The pod's own constraints, else the defaults if it has a Service or controller. Raises SelectorError."""
        own = bool(pod.pod.spec.topology_spread_constraints)
        selector = None if own else self.selectors.selector(pod)
        known = pod.memo.get(_CONSTRAINTS_MEMO)
        if known is not None and known[0] is selector:
            constraints: PodConstraints = known[1]
            return constraints
        labels = pod.pod.metadata.labels
        if selector is None:
            constraints = pod_constraints(own_constraints(pod.pod), labels)
        elif selector.empty or not self._defaults:
            constraints = NO_CONSTRAINTS
        else:
            given = [(each, selector) for each in self._defaults]
            constraints = pod_constraints(given, labels, needs_all_keys=not self._by_system)
        pod.memo[_CONSTRAINTS_MEMO] = selector, constraints
        return constraints
