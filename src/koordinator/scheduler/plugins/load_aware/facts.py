"""The plugin's explanations of a node: load against thresholds, and the original's document of assigned pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from koordinator.api.quantity import Format, Quantity
from koordinator.api.timestamps import format_micro_time
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.explain.explainer import Lack, amount_of, amount_text
from koordinator.scheduler.plugins.load_aware.load_columns import AGGREGATED, CAPACITY, PROD, USAGE, LoadColumns
from koordinator.scheduler.plugins.load_aware.node_load import NodeLoad
from koordinator.scheduler.plugins.load_aware.pod_load import Incoming
from koordinator.scheduler.plugins.load_aware.settings import Settings, Thresholds

_KIND_NAMES = {USAGE: "usage", PROD: "prod usage", AGGREGATED: "aggregated usage"}


def over_threshold(
    settings: Settings, columns: LoadColumns, kind: int, index: int, row: int, load: int, more: int, source: str
) -> Lack:
    """One resource of which ``more`` on top of ``load`` would exceed the node's threshold. ``source``: the
    Recommendation that says how much more, if any does."""
    name = settings.resources[index]
    whole, bound = columns.limits_of[row][CAPACITY][index], columns.limits_of[row][kind][index]
    would_be = (load + more) * 100 / whole
    by = f", by Recommendation {source}" if source else ""
    text = (
        f"{name}: expected {_KIND_NAMES[kind]} {would_be:.0f} %, threshold {bound} % "
        f"({amount_text(name, load)} of {amount_text(name, whole)} used now, the pod is expected to add "
        f"{amount_text(name, more)}{by})"
    )
    return Lack(text, (would_be - bound) / 100)


def estimate_text(settings: Settings, expected: Incoming, why: str) -> str:
    """What a pod is expected to use, and why, in a sentence."""
    named = zip(settings.resources, expected.amounts, strict=True)
    amounts = [amount_of(name, amount) for name, amount in named if amount]
    return f"It is expected to use {' and '.join(amounts) or 'nothing'}, {why}."


def load_facts(
    settings: Settings, columns: LoadColumns, node: NodeLoad, thresholds: Thresholds, row: int
) -> dict[str, Any]:
    """Measured and expected usage by resource, beside the thresholds in force."""
    metric = node.metric
    facts: dict[str, Any] = {"reported": metric is not None and metric.measured, "expired": columns.expired[row]}
    if metric is None:
        return facts
    if metric.faults:
        facts["faults"] = list(metric.faults)
    if metric.updated:
        facts["reportedAt"] = format_micro_time(datetime.fromtimestamp(metric.updated, UTC))
    if not metric.measured:
        return facts
    capacity, loads, sums = columns.limits_of[row][CAPACITY], columns.loads(row, node), node.sums()
    usage, prod = loads[USAGE].amounts, loads[PROD].amounts
    facts["usage"] = [
        {
            "name": name,
            "measured": amount_text(name, metric.usage[index]),
            "notMeasuredYet": amount_text(name, sums.node_delta[index]),
            "expected": amount_text(name, usage[index]),
            "expectedPercent": round(usage[index] * 100 / capacity[index], 1),
            "prodPercent": round(prod[index] * 100 / capacity[index], 1),
            "threshold": thresholds.usage[index],
            "prodThreshold": thresholds.prod[index],
            "aggregatedThreshold": thresholds.aggregated[index],
        }
        for index, name in enumerate(settings.resources)
        if capacity[index] > 0
    ]
    return facts


def assigned_document(settings: Settings, node: NodeLoad, pods: Mapping[str, PodInfo]) -> dict[str, Any]:
    """The original's document of a node: its pods by the time of assignment, and what they add to the report."""
    assigned = sorted(node.pods.items(), key=lambda item: item[1].assigned_at)
    document: dict[str, Any] = {
        "pods": [
            {"timestamp": datetime.fromtimestamp(known.assigned_at, UTC), "pod": pods[uid].pod}
            for uid, known in assigned
            if uid in pods
        ]
    }
    if node.metric is not None:
        sums = node.sums()
        document |= {
            "prodUsage": _resources(settings, sums.prod_usage),
            "nodeDelta": _resources(settings, sums.node_delta),
            "prodDelta": _resources(settings, sums.prod_delta),
            "nodeEstimated": _resources(settings, sums.estimated),
            **_contributors(node),
        }
    return {key: value for key, value in document.items() if value}


def _contributors(node: NodeLoad) -> dict[str, list[str]]:
    """The pods that contribute to each sum: those with a share in it."""
    found: dict[str, list[str]] = {"nodeDeltaPods": [], "prodDeltaPods": [], "nodeEstimatedPods": []}
    for pod in sorted(node.pods.values(), key=lambda pod: pod.key):
        share = node.share_of(pod)
        for name, vector in zip(found, (share.node_delta, share.prod_delta, share.estimated), strict=True):
            if any(vector):
                found[name].append(pod.key)
    return found


def _resources(settings: Settings, vector: Sequence[int]) -> dict[str, Quantity]:
    return {
        name: Quantity.from_milli(amount)
        if name == "cpu"
        else Quantity.from_value(amount, Format.BINARY_SI if name == "memory" else Format.DECIMAL_SI)
        for name, amount in zip(settings.resources, vector, strict=True)
    }
