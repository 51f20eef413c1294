"""The plugin: events into load columns, thresholds into verdicts, load into scores."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

import numpy as np

from koordinator.api import annotations as keys
from koordinator.api.kinds import NODE_METRICS
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import is_finished
from koordinator.scheduler.engine.columns import Aspect, Ints, Rows, at
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_events
from koordinator.scheduler.engine.framework import (
    MAX_NODE_SCORE,
    SKIP_SCORE,
    FilterPlugin,
    Observer,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
    ScorePlugin,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.plugins.load_aware.estimates import Estimates, Incoming
from koordinator.scheduler.plugins.load_aware.facts import assigned_document, load_facts, over_threshold
from koordinator.scheduler.plugins.load_aware.load_columns import (
    AGGREGATED,
    CAPACITY,
    EXPIRED,
    PROD,
    USAGE,
    LoadColumns,
)
from koordinator.scheduler.plugins.load_aware.node_load import AssignedPod, NodeLoad, read_report
from koordinator.scheduler.plugins.load_aware.objects import (
    became_true,
    is_of_daemon_set,
    unamplified_allocatable,
)
from koordinator.scheduler.plugins.load_aware.settings import Settings, Thresholds
from koordinator.scheduler.services.provider import Service, ServiceProvider

REPORT_EXPIRED: Final = f"{NODE_METRICS.name}/Expire"
"""The kind of event that time alone brings about."""
_EXPIRED: Final = 1
_FIRST_RESOURCE: Final = 2
"""Codes from here on: 2 × resource, plus 1 where aggregated usage was compared."""
_LONG_AGO: Final = 0.0
_NO_RESOURCE: Final = MAX_NODE_SCORE + 1


class LoadAwareScheduling(PreFilterPlugin, FilterPlugin, ScorePlugin, Observer, Explainer, ServiceProvider):
    """Assumed pods reach it as an Observer, so that profiles may list it at Reserve or not."""

    name = "LoadAwareScheduling"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE, Aspect.LOAD)
    node_objects = (NODE_METRICS,)
    score_reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE, Aspect.LOAD)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self._settings = Settings(args)
        self._columns = LoadColumns(self._settings)
        self._nodes: dict[int, NodeLoad] = {}
        self._thresholds: dict[int, Thresholds] = {}
        self._freed: list[int] = []
        """Rows whose report has expired, so that load is no longer looked at; nobody has been told yet."""
        # Pods are shared with other profiles, whose plugins may estimate by other factors.
        self._estimates = Estimates(self._settings, f"{self.name}/{id(self)}")

    # Events.

    def on_node(self, row: int, node: Node) -> None:
        self._thresholds[row] = self._settings.thresholds_for(node.metadata.annotations.get(keys.USAGE_THRESHOLDS))
        self._columns.write_node(row, self._settings.amounts(unamplified_allocatable(node)), self._thresholds[row])
        self._write(row)

    def on_node_removed(self, row: int, name: str) -> None:
        self._nodes.pop(row, None)
        self._thresholds.pop(row, None)
        self._columns.clear(row)

    def on_node_object(self, row: int, kind: str, obj: Object | None) -> None:
        if kind != "NodeMetric":
            return
        node = self._node(row)
        metric = read_report(obj, self._settings, node.metric) if isinstance(obj, NodeMetric) else None
        node.report(metric)
        self._columns.write_report_time(row, metric.expires_from if metric else None, self._now())
        self._write(row, anyway=True)

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        if is_finished(pod.pod):
            self.on_pod_removed(row, pod)
        elif self._node(row).assign(pod.uid, self._assigned(row, pod)):
            self._write(row)

    def on_pod_removed(self, row: int, pod: PodInfo) -> None:
        node = self._nodes.get(row)
        if node is not None and node.remove(pod.uid):
            self._write(row)

    def on_time(self, now: datetime) -> None:
        moment = now.timestamp()
        for row in self._columns.due(moment):
            node = self._nodes.get(row)
            if node is not None and node.metric is not None:
                since = node.metric.expires_from
                expired = since is None or since + self._settings.expiration_seconds <= moment
                if self._columns.write_expired(row, expired):
                    self.view.columns.touch(row, Aspect.LOAD)
                    if self._settings.waits_for_expiry:
                        self._freed.append(row)

    def wakes_at(self) -> float | None:
        if not self._settings.waits_for_expiry:
            return None
        return _LONG_AGO if self._freed else self._columns.next_expiry

    def passed_by_time(self, now: datetime) -> Sequence[ClusterEvent]:
        self.on_time(now)
        freed, self._freed = self._freed, []
        nodes = self.view.columns.nodes
        return [ClusterEvent(REPORT_EXPIRED, new=node) for row in freed if (node := nodes[row]) is not None]

    # Decisions.

    def class_key(self, pod: PodInfo) -> Hashable:
        return is_of_daemon_set(pod.pod), self._estimates.of(pod)

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        return PreFilterResult(state=self._estimates.of(pod), skip=is_of_daemon_set(pod.pod))

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        columns, incoming = self._columns, state
        columns.ensure(self.view.columns.size)
        codes = np.zeros(rows.shape[0], dtype=np.int64)
        room = columns.room[int(incoming.prod)]
        short = np.zeros(rows.shape[0], dtype=np.bool_)
        for index, amount in enumerate(incoming.amounts):
            short |= at(room[index], rows) < amount
        if short.any():
            where = np.flatnonzero(short)
            codes[where] = self._codes(rows[where], incoming)
        return codes

    def _codes(self, rows: Rows, incoming: Incoming) -> Ints:
        """Why there is no room on each of ``rows``."""
        columns = self._columns
        room, aggregated = columns.room[int(incoming.prod)], columns.aggregates[rows]
        if incoming.prod:
            aggregated &= ~columns.limits_prod[rows]
        codes = np.zeros(rows.shape[0], dtype=np.int64)
        # The first resource in the order of names is the reason: the last to be written.
        for index in reversed(range(len(incoming.amounts))):
            exceeded = room[index, rows] < incoming.amounts[index]
            codes[exceeded] = _FIRST_RESOURCE + 2 * index + aggregated[exceeded]
        codes[room[0, rows] == EXPIRED] = _EXPIRED
        return codes

    def filter_one(self, pod: PodInfo, state: Any, row: int) -> int:
        columns, incoming = self._columns, state
        room = columns.room_of[row][incoming.prod]
        for index, amount in enumerate(incoming.amounts):
            if room[index] < amount:
                if room[index] == EXPIRED:
                    return _EXPIRED
                return _FIRST_RESOURCE + 2 * index + (columns.compared(row, prod=incoming.prod) == AGGREGATED)
        return 0

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        if code == _EXPIRED:
            return (Reason("node(s) nodeMetric expired"),)
        resource, aggregated = divmod(code - _FIRST_RESOURCE, 2)
        usage = "aggregated usage" if aggregated else "usage"
        return (Reason(f"node(s) {self._settings.resources[resource]} {usage} exceed threshold"),)

    def pre_score(self, pod: PodInfo) -> Any:
        return self._estimates.of(pod) if self._settings.scores else SKIP_SCORE

    def score(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        columns, settings, incoming = self._columns, self._settings, state
        columns.ensure(self.view.columns.size)
        total, lowest = np.zeros(rows.shape[0], dtype=np.int64), np.full(rows.shape[0], _NO_RESOURCE)
        free = columns.free[int(incoming.prod)]
        for index, weight in enumerate(settings.weights):
            if not weight and not settings.dominant_weight:
                continue
            score = at(free[index], rows) - incoming.amounts[index]
            np.maximum(score, 0, out=score)
            score *= MAX_NODE_SCORE
            score //= at(columns.capacity[index], rows)
            if settings.dominant_weight:
                # A resource that the node does not have says nothing about its load.
                lowest = np.where(at(columns.lacks[index], rows), lowest, np.minimum(score, lowest))
            total += score * weight
        if settings.dominant_weight:
            total += np.where(lowest == _NO_RESOURCE, 0, lowest) * settings.dominant_weight
        total //= settings.total_weight
        return total

    def score_one(self, pod: PodInfo, state: Any, row: int) -> int:
        columns, settings, incoming = self._columns, self._settings, state
        free, capacity = columns.free_of[row][incoming.prod], columns.limits_of[row][CAPACITY]
        total, lowest = 0, _NO_RESOURCE
        for index, weight in enumerate(settings.weights):
            whole = capacity[index]
            if whole > 0:
                score = max(free[index] - incoming.amounts[index], 0) * MAX_NODE_SCORE // whole
                total += score * weight
                lowest = min(lowest, score)
        if lowest != _NO_RESOURCE:
            total += lowest * settings.dominant_weight
        return total // settings.total_weight

    def wakes_on(self) -> frozenset[str]:
        # A new node or a larger one can take the pod as well; the original waits for its first report.
        by_time = (REPORT_EXPIRED,) if self._settings.waits_for_expiry else ()
        return object_events(NODE_METRICS) | {
            *by_time,
            *(EventKind.POD_DELETE, EventKind.POD_SCALE_DOWN, EventKind.NODE_ADD, EventKind.NODE_ALLOCATABLE),
        }

    def may_help(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """Whether the node that the event is about passes now."""
        about = event.new if event.new is not None else event.old
        name = (
            about.pod.spec.node_name if isinstance(about, PodInfo) else about.metadata.name if about is not None else ""
        )
        row = self.view.columns.row_of.get(name)
        return row is None or self.filter_one(pod, self._estimates.of(pod), row) == 0

    # Answers to people.

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        if code == _EXPIRED:
            return ()
        incoming: Incoming = state
        index, aggregated = divmod(code - _FIRST_RESOURCE, 2)
        by_prod = incoming.prod and bool(self._columns.limits_prod[row])
        kind = PROD if by_prod else AGGREGATED if aggregated else USAGE
        return (over_threshold(self._settings, self._columns, kind, index, row, incoming.amounts[index]),)

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

    # What events and decisions share.

    def _assigned(self, row: int, pod: PodInfo) -> AssignedPod:
        scheduled = became_true(pod.pod, "PodScheduled")
        assigned_at = scheduled.timestamp() if scheduled is not None else self._known_since(row, pod.uid)
        return self._estimates.assigned(pod, assigned_at)

    def _known_since(self, row: int, uid: str) -> float:
        # A pod that was assumed keeps the moment of that until the API says when it was scheduled.
        known = self._nodes[row].pods.get(uid) if row in self._nodes else None
        return known.assigned_at if known is not None else self._now()

    def _node(self, row: int) -> NodeLoad:
        node = self._nodes.get(row)
        if node is None:
            node = self._nodes[row] = NodeLoad(len(self._settings.resources))
        return node

    def _write(self, row: int, *, anyway: bool = False) -> None:
        """Bring the row's columns up to date; rows that look as before need no new decision."""
        node = self._nodes.get(row)
        if node is not None:
            thresholds = self._thresholds.get(row, self._settings.thresholds)
            if self._columns.write_load(row, node, thresholds) or anyway:
                self.view.columns.touch(row, Aspect.LOAD)

    def _now(self) -> float:
        return self.view.now.timestamp() if self.view.now is not None else _LONG_AGO
