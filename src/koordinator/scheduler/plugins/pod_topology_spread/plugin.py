"""The PodTopologySpread plugin: the constraints of each pod, and the extension points that evaluate them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.pod import TopologySpreadConstraint
from koordinator.model.label_selector import SelectorError
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
from koordinator.scheduler.plugins.pod_topology_spread.constraints import (
    EVENTS_TO_REGISTER,
    NO_CONSTRAINTS,
    SYSTEM_DEFAULTS,
    PodConstraints,
    constraints_key,
    default_constraints,
    own_constraints,
    queueing_hint,
)
from koordinator.scheduler.plugins.pod_topology_spread.default_selector import READ, DefaultSelectors
from koordinator.scheduler.plugins.pod_topology_spread.hard_spread import (
    MISSING_KEY,
    READS,
    TOO_UNEVEN,
    ClassSpread,
    HardSpread,
    lacks_of,
)
from koordinator.scheduler.plugins.pod_topology_spread.soft_spread import SoftSpread
from koordinator.scheduler.plugins.pod_topology_spread.spread import Spread
from koordinator.scheduler.plugins.topologies import Topologies

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
        return lacks_of(state, node, row) if node is not None else ()

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
        if selector is None:
            constraints = own_constraints(pod.pod)
        elif selector.empty or not self._defaults:
            constraints = NO_CONSTRAINTS
        else:
            labels = pod.pod.metadata.labels
            constraints = default_constraints(self._defaults, selector, labels, needs_all_keys=not self._by_system)
        pod.memo[_CONSTRAINTS_MEMO] = selector, constraints
        return constraints
