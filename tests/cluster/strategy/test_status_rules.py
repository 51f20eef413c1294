"""Counts in the status of a workload are refused where kube-apiserver v1.35 refuses them."""

from __future__ import annotations

import pytest

from koordinator.api.document import Document
from koordinator.cluster.strategy.status_rules import check_counts

_TOO_MANY = "cannot be greater than"


@pytest.mark.parametrize(
    ("kind", "status", "causes"),
    [
        ("Deployment", {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "updatedReplicas": 1}, {}),
        ("Deployment", {"unavailableReplicas": -1}, {"unavailableReplicas": "must be greater than or equal to 0"}),
        ("ReplicaSet", {"replicas": 1, "readyReplicas": 2}, {"readyReplicas": f"{_TOO_MANY} status.replicas"}),
        (
            "ReplicaSet",
            {"replicas": -1},
            {
                "replicas": "must be greater than or equal to 0",
                **dict.fromkeys(
                    ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"), f"{_TOO_MANY} status.replicas"
                ),
            },
        ),
        ("ReplicaSet", {"replicas": 1, "availableReplicas": 1}, {"availableReplicas": f"{_TOO_MANY} readyReplicas"}),
        (
            "StatefulSet",
            {"replicas": 1, "availableReplicas": 1, "collisionCount": 2},
            {"availableReplicas": f"{_TOO_MANY} status.readyReplicas", "collisionCount": "cannot be decremented"},
        ),
        ("DaemonSet", {"numberReady": 5, "collisionCount": 3}, {}),
        ("HorizontalPodAutoscaler", {"desiredReplicas": -1}, {"desiredReplicas": "must be greater than or equal to 0"}),
        ("ConfigMap", {"replicas": -1}, {}),
    ],
)
def test_counts(kind: str, status: Document, causes: dict[str, str]) -> None:
    before = {"collisionCount": 3} if "collisionCount" in status else {}
    found = check_counts(kind, {"status": status}, {"status": before})
    assert {
        cause.field.removeprefix("status."): cause.message.partition(": ")[2].partition(": ")[2] for cause in found
    } == causes
