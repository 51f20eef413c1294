from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.cluster.strategy.pod_table import pod_table
from tests.cluster.corpus import NOW


def _pod(status: Document, *, containers: int = 1, init: list[Document] | None = None, **metadata: Any) -> Document:
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "creationTimestamp": "2025-12-31T23:00:00Z", **metadata},
        "spec": {"containers": [{"name": f"c{i}"} for i in range(containers)], "initContainers": init or []},
        "status": status,
    }


def _row(pod: Document) -> list[Any]:
    return pod_table().row(pod, NOW)


RUNNING = {"ready": True, "state": {"running": {}}}
WAITING = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}
COMPLETED = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
FAILED = {"state": {"terminated": {"exitCode": 3}}}
KILLED = {"state": {"terminated": {"exitCode": 137, "signal": 9}}}
READY = [{"type": "Ready", "status": "True"}]
SIDECAR = {"name": "s", "restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("pod", "ready", "status"),
    [
        (_pod({"phase": "Pending"}), "0/1", "Pending"),
        (_pod({"phase": "Running", "containerStatuses": [RUNNING]}), "1/1", "Running"),
        (_pod({"phase": "Running", "containerStatuses": [RUNNING, WAITING]}, containers=2), "1/2", "CrashLoopBackOff"),
        (_pod({"phase": "Failed", "reason": "Evicted"}), "0/1", "Evicted"),
        (_pod({"phase": "Succeeded", "containerStatuses": [COMPLETED]}), "0/1", "Completed"),
        (_pod({"phase": "Failed", "containerStatuses": [FAILED]}), "0/1", "ExitCode:3"),
        (_pod({"phase": "Failed", "containerStatuses": [KILLED]}), "0/1", "Signal:9"),
        (
            _pod({"phase": "Running", "containerStatuses": [COMPLETED, RUNNING], "conditions": READY}, containers=2),
            "1/2", "Running",
        ),
        (_pod({"phase": "Running", "containerStatuses": [COMPLETED, RUNNING]}, containers=2), "1/2", "NotReady"),
        (_pod({"phase": "Pending", "initContainerStatuses": [{"state": {}}]}, init=[{"name": "i"}]), "0/1", "Init:0/1"),
        (_pod({"phase": "Pending", "initContainerStatuses": [FAILED]}, init=[{"name": "i"}]), "0/1", "Init:ExitCode:3"),
        (
            _pod({"phase": "Pending", "initContainerStatuses": [WAITING]}, init=[{"name": "i"}]),
            "0/1", "Init:CrashLoopBackOff",
        ),
        (
            _pod({"phase": "Running", "initContainerStatuses": [{"name": "s", "started": True, **RUNNING}],
                  "containerStatuses": [RUNNING]}, init=[SIDECAR]),
            "2/2", "Running",
        ),
        (_pod({"phase": "Running"}, deletionTimestamp="2026-01-01T00:00:00Z"), "0/1", "Terminating"),
        (_pod({"phase": "Succeeded"}, deletionTimestamp="2026-01-01T00:00:00Z"), "0/1", "Succeeded"),
        (_pod({"phase": "Running", "reason": "NodeLost"}, deletionTimestamp="2026-01-01T00:00:00Z"), "0/1", "Unknown"),
        (
            _pod({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
            "0/1", "SchedulingGated",
        ),
    ],
)  # fmt: skip
def test_ready_and_status(pod: Document, ready: str, status: str) -> None:
    assert _row(pod)[1:3] == [ready, status]


def test_restarts_name_the_last_one() -> None:
    ended = {"terminated": {"finishedAt": "2025-12-31T23:59:00Z"}}
    pod = _pod({"phase": "Running", "containerStatuses": [{**RUNNING, "restartCount": 4, "lastState": ended}]})
    assert _row(pod)[3:5] == ["4 (60s ago)", "60m"]


def test_wide_columns_of_a_bare_pod() -> None:
    assert _row(_pod({"phase": "Pending"}))[5:] == ["<none>"] * 4
