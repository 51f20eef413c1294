"""Why a pod is where it is, or nowhere: its last attempts and what it waits for, as a JSON document."""

from __future__ import annotations

from typing import Any

from koordinator.api.timestamps import format_micro_time
from koordinator.scheduler.engine.decision import Attempt, DecisionLog, Placement, Rejection
from koordinator.scheduler.queue.queued_pod import Pool, QueuedPod
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue


def explain(decisions: DecisionLog, queue: SchedulingQueue, namespace: str, name: str) -> dict[str, Any] | None:
    """What is known of the pod; None when it was neither tried lately nor is queued."""
    key = f"{namespace}/{name}"
    attempts = decisions.attempts(key)
    entry = next((entry for entry in queue.pods() if entry.pod.key == key), None)
    if not attempts and entry is None:
        return None
    document: dict[str, Any] = {"pod": key, "attempts": [_attempt(attempt) for attempt in attempts]}
    if entry is not None:
        document["queue"] = _queued(entry)
    return document


def _queued(entry: QueuedPod) -> dict[str, Any]:
    document: dict[str, Any] = {"pool": entry.pool.value, "attempts": entry.attempts}
    if entry.reason:
        document["reason"] = entry.reason
    if entry.pool is Pool.UNSCHEDULABLE:
        document["wakesOn"] = sorted(entry.wakes_on)
    return document


def _attempt(attempt: Attempt) -> dict[str, Any]:
    document: dict[str, Any] = {"time": format_micro_time(attempt.at), "attempt": attempt.number}
    if attempt.placement is not None:
        return {**document, **_placement(attempt.placement)}
    if attempt.rejection is not None:
        return {**document, **_rejection(attempt.rejection)}
    return {**document, "result": "error", "message": attempt.error}


def _placement(placement: Placement) -> dict[str, Any]:
    return {
        "result": "placed",
        "node": placement.node_name,
        "evaluatedNodes": placement.evaluated,
        "feasibleNodes": placement.feasible,
        "otherNodesRuledOutBy": list(placement.kept_off_by),
        "topNodes": [
            {"node": scored.node, "score": scored.total, "scoreByPlugin": scored.by_plugin} for scored in placement.top
        ],
    }


def _rejection(rejection: Rejection) -> dict[str, Any]:
    return {
        "result": "unschedulable",
        "message": rejection.message,
        "evaluatedNodes": rejection.evaluated,
        "ruledOut": [
            {
                "plugin": entry.plugin,
                "reasons": list(entry.reasons),
                "nodes": entry.count,
                "examples": list(entry.examples),
                "evictingPodsMayHelp": not entry.unresolvable,
            }
            for entry in rejection.ruled_out
        ],
        "wakesOn": sorted(rejection.wakes_on),
    }
