"""What the status of a workload must say: counts that are no less than none, and that fit each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import invalid
from koordinator.cluster.strategy.rules import not_negative


@dataclass(frozen=True, slots=True)
class _Counts:
    names: tuple[str, ...]
    parts: tuple[str, ...] = ()
    """What counts some of ``replicas``."""
    ready: str = ""
    """How the real server calls ``readyReplicas``, which are no fewer than the available ones."""


_OF_REPLICA_SETS: Final = _Counts(
    ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"),
    ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
    "readyReplicas",
)
_COUNTS: Final = {
    "ReplicationController": _OF_REPLICA_SETS,
    "ReplicaSet": _OF_REPLICA_SETS,
    "Deployment": _Counts(
        (
            "observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas",
            "unavailableReplicas", "collisionCount",
        ),
        ("updatedReplicas", "readyReplicas", "availableReplicas"),
        "readyReplicas",
    ),
    "StatefulSet": _Counts(
        (
            "replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas",
            "observedGeneration", "collisionCount",
        ),
        ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"),
        "status.readyReplicas",
    ),
    "DaemonSet": _Counts(
        (
            "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
            "observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount",
        )
    ),
    "HorizontalPodAutoscaler": _Counts(("currentReplicas", "desiredReplicas")),
}  # fmt: skip


def check_counts(kind: str, obj: Document, old: Document) -> list[Cause]:
    """Of a new status; kinds without counts have nothing to say."""
    counts = _COUNTS.get(kind)
    if counts is None:
        return []
    status, before = obj.get("status") or {}, old.get("status") or {}
    causes = [cause for name in counts.names for cause in not_negative(status.get(name), f"status.{name}")]
    causes += [
        invalid(f"status.{name}", status.get(name) or 0, "cannot be greater than status.replicas")
        for name in counts.parts
        if (status.get(name) or 0) > (status.get("replicas") or 0)
    ]
    available = status.get("availableReplicas") or 0
    if counts.ready and available > (status.get("readyReplicas") or 0):
        causes.append(invalid("status.availableReplicas", available, f"cannot be greater than {counts.ready}"))
    collisions = status.get("collisionCount") or 0
    if collisions < (before.get("collisionCount") or 0):
        causes.append(invalid("status.collisionCount", collisions, "cannot be decremented"))
    return causes
