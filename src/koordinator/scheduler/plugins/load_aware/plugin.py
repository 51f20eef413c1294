"""The plugin: turns events into load columns, and load and thresholds into filter results and scores."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

import numpy as np

from koordinator.api import annotations as keys
from koordinator.api.adaptive_slo import score_percent
from koordinator.api.kinds import NODE_METRICS, RECOMMENDATIONS, Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import is_finished
from koordinator.api.recommendation import Recommendation
from koordinator.base.services import Service
from koordinator.model.huge_pages import huge_page_pool
from koordinator.model.raw_allocatable import raw_allocatable
from koordinator.scheduler.engine.batch_kernel import BatchKernel
from koordinator.scheduler.engine.columns import Aspect, Ints, Rows
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_events
from koordinator.scheduler.engine.framework import (
    FEASIBLE,
    SKIP_SCORE,
    EventHandler,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
)
from koordinator.scheduler.engine.framework_hooks import ServiceProvider
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.plugin_forms import ElementwiseFilterPlugin, ElementwiseScorePlugin, SomeRows
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.plugins.load_aware.facts import assigned_document, estimate_text, load_facts, over_threshold
from koordinator.scheduler.plugins.load_aware.load_columns import (
    AGGREGATED,
    PROD,
    USAGE,
    LoadColumns,
)
from koordinator.scheduler.plugins.load_aware.node_load import NodeLoad, Report, read_report
from koordinator.scheduler.plugins.load_aware.pod_load import (
    AssignedPod,
    Estimates,
    Incoming,
    became_true,
    is_of_daemon_set,
)
from koordinator.scheduler.plugins.load_aware.recommended_estimates import RecommendedEstimates
from koordinator.scheduler.plugins.load_aware.rules import (
    FIRST_RESOURCE,
    REPORT_IS_EXPIRED,
    BatchLoadFilter,
    BatchLoadScores,
    LoadRules,
)
from koordinator.scheduler.plugins.load_aware.settings import Settings, Thresholds

REPORT_EXPIRED: Final = f"{NODE_METRICS.name}/Expire"
"""The kind of event caused by time alone."""
_LONG_AGO: Final = 0.0
_OF_RECOMMENDATIONS: Final = object_events(RECOMMENDATIONS)


class LoadAwareScheduling(
    PreFilterPlugin, ElementwiseFilterPlugin, ElementwiseScorePlugin, EventHandler, Explainer, ServiceProvider
):
    """It is notified of assumed pods as an EventHandler, so that profiles may list it at Reserve or not."""

    name = "LoadAwareScheduling"
    handle: Handle
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE, Aspect.LOAD)
    node_objects = (NODE_METRICS,)
    watches = (RECOMMENDATIONS,)
    score_reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE, Aspect.LOAD)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._settings = Settings(args)
        self._columns = LoadColumns(self._settings)
        self.expirations = self._columns.expirations
        self._rules = LoadRules(self._settings, self._columns)
        self._nodes: dict[int, NodeLoad] = {}
        self._thresholds: dict[int, Thresholds] = {}
        self._freed: list[int] = []
        """Rows whose report has expired, so that load is no longer compared; not reported as events yet."""
        # Pods are shared with other profiles, whose plugins may estimate by other factors.
        memo_key = f"{self.name}/{id(self)}"
        by_recommendations = self._settings.by_recommendations
        self._recommended = RecommendedEstimates(self._settings, memo_key, view) if by_recommendations else None
        self._estimates = self._recommended or Estimates(self._settings, memo_key)

    @property
    def watched_kinds(self) -> tuple[Kind[Any], ...]:
        return self.watches if self._recommended is not None else ()

    # Events.

    def on_node(self, row: int, node: Node) -> None:
        self._thresholds[row] = self._settings.thresholds_for(node.metadata.annotations.get(keys.USAGE_THRESHOLDS))
        capacity = self._settings.amounts(raw_allocatable(node))
        # Rows without relevant changes need not be evaluated again.
        news = self._columns.write_node(row, capacity, self._thresholds[row], huge_page_pool(node))
        rescored = self._columns.write_score_percent(row, score_percent(node.metadata.annotations))
        if (news and self._columns.conclude(row, self._nodes.get(row))) or rescored:
            self.view.columns.touch(row, Aspect.LOAD)

    def on_node_removed(self, row: int, name: str) -> None:
        node = self._nodes.pop(row, None)
        if self._recommended is not None and node is not None:
            for uid in node.pods:
                self._recommended.leave(uid)
        self._thresholds.pop(row, None)
        self._columns.clear(row)
        self._columns.write_score_percent(row, 100)

    def on_node_object(self, row: int, kind: str, obj: Object | None) -> None:
        if kind != "NodeMetric":
            return
        node = self._nodes.get(row) or self._new(row)
        before = node.metric
        node.metric = read_report(obj, self._settings, before, self._now()) if isinstance(obj, NodeMetric) else None
        if node.metric is None:
            self._columns.clear(row)
        else:
            self._columns.write_report_time(row, node.metric.expires_from, self._now())
            self._columns.conclude(row, node)
        self.view.columns.touch(row, Aspect.LOAD)
        if isinstance(obj, NodeMetric) and node.metric is not None:
            self._report(obj, node.metric, before)

    def _report(self, metric: NodeMetric, now: Report, before: Report | None) -> None:
        """Report each field that is not usable, unless it was so before."""
        known = {_field(fault) for fault in before.faults} if before is not None else ()
        for fault in now.faults:
            if _field(fault) not in known:
                self.handle.object_event(NODE_METRICS, metric, "Warning", "UnusableNodeMetric", "Scheduling", fault)

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        if not assumed and is_finished(pod.pod):
            self.on_pod_removed(row, pod)
            return
        node = self._nodes.get(row) or self._new(row)
        if self._recommended is not None:
            self._recommended.place(row, pod)
        more = node.assign(pod.uid, self._assigned(node, pod))
        if more is not None and self._columns.shift(row, more, 1):
            self.view.columns.touch(row, Aspect.LOAD)

    def on_pod_resized(self, row: int, before: PodInfo, after: PodInfo) -> None:
        # It keeps the time of its assignment.
        self.on_pod_assigned(row, after, False)

    def on_pod_removed(self, row: int, pod: PodInfo) -> None:
        if self._recommended is not None:
            self._recommended.leave(pod.uid)
        node = self._nodes.get(row)
        less = node.remove(pod.uid) if node is not None else None
        if less is not None and self._columns.shift(row, less, -1):
            self.view.columns.touch(row, Aspect.LOAD)

    def on_object(self, kind: Kind[Any], key: str, old: Object | None, new: Object | None) -> None:
        if self._recommended is not None and kind is RECOMMENDATIONS:
            self._recommended.on_recommendation(key, _recommendation(old), _recommendation(new))

    def on_time(self, now: datetime) -> None:
        if self._recommended is not None:
            for row, uid in self._recommended.on_time(now):
                pod = self.view.pods_on.get(row, {}).get(uid)
                if pod is not None:
                    self.on_pod_assigned(row, pod, False)
        moment = now.timestamp()
        for row in self.expirations.due(moment):
            node = self._nodes.get(row)
            if node is not None and node.metric is not None:
                since = node.metric.expires_from
                expired = since is None or since + self._settings.expiration_seconds <= moment
                if self._columns.write_expired(row, expired):
                    self._columns.conclude(row, node)
                    self.view.columns.touch(row, Aspect.LOAD)
                    if self._settings.waits_for_expiry:
                        self._freed.append(row)

    def next_time_event(self) -> float | None:
        if not self._settings.waits_for_expiry:
            return None
        return _LONG_AGO if self._freed else self.expirations.next

    def time_events(self, now: datetime) -> Sequence[ClusterEvent]:
        self.on_time(now)
        freed, self._freed = self._freed, []
        nodes = self.view.columns.nodes
        return [ClusterEvent(REPORT_EXPIRED, new=node) for row in freed if (node := nodes[row]) is not None]

    # Decisions.

    def class_key(self, pod: PodInfo) -> Hashable:
        return is_of_daemon_set(pod.pod), self._estimates.of(pod) if self._recommended is None else None

    def context_key(self, pod: PodInfo) -> Hashable:
        # Recommendations change, while the class key of a pod stays.
        return self._estimates.of(pod) if self._recommended is not None else None

    def concerns(self, pod: PodInfo) -> bool:
        # Without Recommendations, there is no need to ask for the context.
        return self._recommended is not None

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        return PreFilterResult(self._estimates.of(pod), skip=is_of_daemon_set(pod.pod))

    def filter(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        return self._rules.codes(state, rows)

    def filter_last(self, pod: PodInfo, state: Any, rows: Rows, numbers: Ints) -> Ints:
        codes = np.zeros(rows.shape[0], dtype=np.int64)
        for number in np.unique(numbers).tolist():
            meant = numbers == number
            codes[meant] = self._rules.codes(state.times(number), rows[meant])
        return codes

    def batch_filter(self) -> BatchKernel:
        return BatchLoadFilter(self._columns, self._rules, len(self._settings.resources))

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        if code == REPORT_IS_EXPIRED:
            return (Reason("node(s) nodeMetric expired"),)
        resource, aggregated = divmod(code - FIRST_RESOURCE, 2)
        usage = "aggregated usage" if aggregated else "usage"
        return (Reason(f"node(s) {self._settings.resources[resource]} {usage} exceed threshold"),)

    def pre_score(self, pod: PodInfo) -> Any:
        return self._estimates.of(pod) if self._settings.scores else SKIP_SCORE

    def score(self, pod: PodInfo, state: Any, rows: SomeRows) -> Any:
        return self._rules.score(state, rows) if isinstance(rows, int) else self._rules.scores(state, rows)

    def batch_score(self) -> BatchKernel:
        return BatchLoadScores(self._columns, self._rules, len(self._settings.resources))

    def events_to_register(self) -> frozenset[str]:
        # A new node or a larger one can take the pod as well; the original waits for its first report.
        by_time = (REPORT_EXPIRED,) if self._settings.waits_for_expiry else ()
        by_recommendations = _OF_RECOMMENDATIONS if self._recommended is not None else ()
        return object_events(NODE_METRICS) | {
            *by_time,
            *by_recommendations,
            *(EventKind.POD_DELETE, EventKind.POD_SCALE_DOWN, EventKind.NODE_ADD, EventKind.NODE_ALLOCATABLE),
        }

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Whether the node that the event is about passes now, or the pod itself counts otherwise."""
        if self._recommended is not None and event.kind in _OF_RECOMMENDATIONS:
            return self._recommended.may_change(pod, event.old, event.new)
        row = self.view.columns.row_of.get(event.node_name)
        return row is None or self._rules.codes(self._estimates.of(pod), row) == FEASIBLE

    # Explanations and services.

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        if code == REPORT_IS_EXPIRED:
            return ()
        expected: Incoming = state
        index, aggregated = divmod(code - FIRST_RESOURCE, 2)
        by_prod = expected.prod and bool(self._columns.limits_prod[row])
        kind = PROD if by_prod else AGGREGATED if aggregated else USAGE
        node = self._nodes.get(row)
        loads = self._columns.loads(row, node) if node is not None else ()
        if not loads:
            return ()
        used, more = loads[kind].amounts[index], expected.amounts[index]
        source = self._estimates.of(pod).source
        return (over_threshold(self._settings, self._columns, kind, index, row, used, more, source),)

    def pod_facts(self, pod: PodInfo) -> Sequence[str]:
        if self._recommended is None:
            return ()
        return (estimate_text(self._settings, self._recommended.of(pod), self._recommended.why(pod)),)

    def node_facts(self, row: int) -> Mapping[str, Any] | None:
        node, thresholds = self._nodes.get(row), self._thresholds.get(row)
        if node is None or thresholds is None:
            return None
        return load_facts(self._settings, self._columns, node, thresholds, row)

    def services(self) -> Mapping[str, Service]:
        return {"/node/:nodeName": self._node_document}

    def _node_document(self, parameters: Mapping[str, str]) -> Any:
        row = self.view.columns.row_of.get(parameters["nodeName"])
        node = self._nodes.get(row) if row is not None else None
        if row is None or node is None or not (node.pods or node.metric):
            return {}
        return assigned_document(self._settings, node, self.view.pods_on.get(row, {}))

    # Shared by events and decisions.

    def _assigned(self, node: NodeLoad, pod: PodInfo) -> AssignedPod:
        scheduled = became_true(pod.pod, "PodScheduled")
        if scheduled is not None:
            return self._estimates.assigned(pod, scheduled.timestamp())
        # A pod that was assumed keeps the time of that until the API shows when it was scheduled.
        known = node.pods.get(pod.uid)
        return self._estimates.assigned(pod, known.assigned_at if known is not None else self._now())

    def _new(self, row: int) -> NodeLoad:
        node = self._nodes[row] = NodeLoad(len(self._settings.resources))
        return node

    def _now(self) -> float:
        return self.view.now.timestamp() if self.view.now is not None else _LONG_AGO


def _recommendation(obj: Object | None) -> Recommendation | None:
    return obj if isinstance(obj, Recommendation) else None


def _field(fault: str) -> str:
    return fault.partition(": ")[0]
