"""LowNodeLoad: the pools one after the other, from their load to evictions."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, Self

from koordinator.api.node import Node
from koordinator.descheduler.configuration.arguments import checked_selector
from koordinator.descheduler.framework import Handle, HotNode, Plan, Remark, Snapshot
from koordinator.descheduler.plugins.low_node_load.anomaly import Detectors
from koordinator.descheduler.plugins.low_node_load.arguments import AnomalyCondition, LowNodeLoadArgs, NodePool
from koordinator.descheduler.plugins.low_node_load.balancing import PoolBalance, Rules
from koordinator.descheduler.plugins.low_node_load.expected_usage import Ints, is_expected, measured_name
from koordinator.descheduler.plugins.low_node_load.load_columns import LoadColumns, measure
from koordinator.descheduler.plugins.low_node_load.thresholds import (
    Groups,
    classify,
    complete_percentages,
    misleading,
    node_thresholds,
)
from koordinator.descheduler.plugins.selection import SelectivePlugin

_FOREVER: Final = 10**10
"""Seconds: three centuries, as long as durations get elsewhere."""


class LowNodeLoad(SelectivePlugin):
    """Evicts pods from nodes that use more than a threshold, for nodes that use less."""

    name = "LowNodeLoad"
    args_type = LowNodeLoadArgs
    args: LowNodeLoadArgs

    def __init__(self, args: LowNodeLoadArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        timeout = args.detector_cache_timeout.total_seconds()
        self._detectors = [(Detectors(timeout), Detectors(timeout)) for _ in args.pools]
        """Of each pool: of the load of nodes, and of their pods of class prod."""

    @property
    def reads_recommendations(self) -> bool:
        return any(pool.expected_high_thresholds for pool in self.args.pools)

    def rehearsing(self) -> Self:
        """With copies of the detectors, which count cycles."""
        copied = super().rehearsing()
        copied._detectors = copy.deepcopy(self._detectors)
        return copied

    def _balance(self, snapshot: Snapshot) -> Plan:
        processed: set[str] = set()
        for pool, (detectors, prod_detectors) in zip(self.args.pools, self._detectors, strict=True):
            yield from self._balance_pool(pool, detectors, prod_detectors, snapshot, processed)

    def _balance_pool(
        self,
        pool: NodePool,
        detectors: Detectors,
        prod_detectors: Detectors,
        snapshot: Snapshot,
        processed: set[str],
    ) -> Plan:
        nodes = _nodes_of(pool, snapshot.nodes, processed)
        for text in misleading(pool):
            yield Remark(f"node pool {pool.name}: {text}")
        if not nodes:
            yield Remark(f"node pool {pool.name}: there are no nodes")
            return
        percentages = complete_percentages(pool)
        expiration = timedelta(seconds=min(self.args.node_metric_expiration_seconds, _FOREVER))
        expected = sorted(pool.expected_high_thresholds or ())
        columns = measure(snapshot, nodes, percentages.names, expiration, expected)
        thresholds = node_thresholds(columns, percentages, deviation=pool.use_deviation_thresholds)
        groups = classify(columns, thresholds)
        yield Remark(_summary(pool, columns, groups))
        for text in _expectations(columns, groups.source) if expected else ():
            yield Remark(f"node pool {pool.name}: {text}")
        now = snapshot.monotonic
        condition = pool.anomaly_condition or AnomalyCondition()
        abnormal = _confirmed(columns, groups.source, detectors, condition, now)
        abnormal_prod = _confirmed(columns, groups.prod_high, prod_detectors, condition, now)
        needed = _needed(condition)
        for row in groups.source:
            yield _hot_node(pool, columns, columns.usage, thresholds.high, row, detectors, needed, row in abnormal)
        for row in groups.prod_high:
            usage, limits, confirmed = columns.prod_usage, thresholds.prod_high, row in abnormal_prod
            yield _hot_node(pool, columns, usage, limits, row, prod_detectors, needed, confirmed)
        idle = _why_idle(groups, abnormal, abnormal_prod, self.args.number_of_nodes)
        if idle:
            yield Remark(f"node pool {pool.name}: {idle}")
            return
        _reset(columns, (*groups.low, *groups.both_low), detectors, now)
        _reset(columns, groups.prod_low, prod_detectors, now)
        rules = Rules(
            dry_run=self.args.dry_run,
            node_fit=self.args.node_fit,
            weights=_weights(pool, columns),
            allow=self._allows,
        )
        yield from PoolBalance(snapshot, columns, thresholds, percentages, groups, rules).run(
            abnormal,
            abnormal_prod,
            lambda row: _reset(columns, (row,), detectors, now),
            lambda row: _reset(columns, (row,), prod_detectors, now),
        )
        _mark_normal(columns, abnormal, detectors, now)
        _mark_normal(columns, abnormal_prod, prod_detectors, now)
        processed.update(columns.nodes[row].metadata.name for row in groups.source)


def _nodes_of(pool: NodePool, nodes: Sequence[Node], processed: set[str]) -> Sequence[Node]:
    """A pool without a selector has all nodes, also those that an earlier pool has relieved."""
    selector = checked_selector(pool.node_selector, f"nodePools[{pool.name}].nodeSelector")
    if selector is None:
        return nodes
    return [node for node in nodes if node.metadata.name not in processed and selector.matches(node.metadata.labels)]


def _confirmed(
    columns: LoadColumns, hot: Sequence[int], detectors: Detectors, condition: AnomalyCondition, now: float
) -> list[int]:
    """Those of the hot nodes that have been hot for long enough; a node that is not hot ends its run."""
    detectors.forget_expired(now)
    _mark_normal(columns, sorted(set(range(len(columns.nodes))).difference(hot)), detectors, now)
    return [row for row in hot if detectors.mark_hot(columns.nodes[row].metadata.name, condition, now)]


def _needed(condition: AnomalyCondition) -> int:
    """In how many cycles in a row a node has to be hot."""
    least = condition.consecutive_abnormalities
    return least if least == 1 else least + 1


def _hot_node(
    pool: NodePool,
    columns: LoadColumns,
    usage: Ints,
    limits: Ints,
    row: int,
    detectors: Detectors,
    needed: int,
    is_confirmed: bool,
) -> HotNode:
    over = [name for name, is_over in zip(columns.resources, usage[row] > limits[row], strict=True) if is_over]
    used, most = columns.percentages(row, usage), columns.percentages(row, limits)
    name = columns.nodes[row].metadata.name
    return HotNode(
        name,
        pool.name,
        "all" if usage is columns.usage else "prod",
        {each: used[each] for each in over},
        {each: most[each] for each in over},
        detectors.hot_cycles(name),
        needed,
        is_confirmed,
    )


def _weights(pool: NodePool, columns: LoadColumns) -> Mapping[str, int]:
    """What is expected of a resource weighs as much as what was measured."""
    weights = pool.resource_weights or {}
    return {**weights, **{name: weights.get(measured_name(name), 0) for name in columns.resources if is_expected(name)}}


def _mark_normal(columns: LoadColumns, rows: Sequence[int], detectors: Detectors, now: float) -> None:
    for row in rows:
        detectors.mark_normal(columns.nodes[row].metadata.name, now)


def _reset(columns: LoadColumns, rows: Sequence[int], detectors: Detectors, now: float) -> None:
    for row in rows:
        detectors.reset(columns.nodes[row].metadata.name, now)


def _why_idle(groups: Groups, abnormal: Sequence[int], abnormal_prod: Sequence[int], number_of_nodes: int) -> str:
    """Why nothing is to be done; "" when something is."""
    if not groups.source and not groups.prod_high:
        return "all nodes are under target utilization, nothing to do here"
    if not abnormal and not abnormal_prod:
        return "none of the nodes were detected as anomalous, nothing to do here"
    low = len(groups.low) + len(groups.prod_low) + len(groups.both_low)
    if not low:
        return "no nodes are underutilized, nothing to do here, you might tune your thresholds further"
    if low <= number_of_nodes:
        return f"{low} nodes are underutilized, not more than numberOfNodes ({number_of_nodes}), nothing to do here"
    return ""


def _expectations(columns: LoadColumns, hot: Sequence[int]) -> Iterator[str]:
    """Of how many pods more is expected than was measured, and which workloads would make hot nodes hotter."""
    pods = sum(map(len, columns.raises))
    if not pods:
        yield "no Recommendation that may be used says that a pod will use more than was measured"
        return
    of = {each.source for raises in columns.raises for each in raises.values()}
    yield f"more is expected of {pods} pods than was measured; Recommendations that say so: {len(of)}"
    for row in hot:
        contingencies, name = columns.contingencies[row], columns.nodes[row].metadata.name
        for column, resource in enumerate(columns.resources):
            if is_expected(resource) and (source := contingencies.source(column)):
                yield f"node {name}: {resource} is with the pods of Recommendation {source} at their peak"


def _summary(pool: NodePool, columns: LoadColumns, groups: Groups) -> str:
    unmeasured = "".join(f"; {name} is left out: {why}" for name, why in columns.unmeasured.items())
    return (
        f"node pool {pool.name}: {len(groups.source)} nodes above high thresholds, {len(groups.prod_high)} by prod "
        f"pods, {len(groups.low)} below low thresholds, {len(groups.prod_low)} by prod pods, {len(groups.both_low)} "
        f"by both, of {len(columns.nodes)} that have been measured{unmeasured}"
    )
