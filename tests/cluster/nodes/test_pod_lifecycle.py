"""What happens next to a pod, case by case."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod, PodCondition, PodSpec, PodStatus
from koordinator.cluster.nodes.pod_runtime import Plan, PodDelays, PodTimes, Step, next_step

_SERVICE = PodDelays(start=2.0, stop=1.0, run=None)
_BATCH = PodDelays(start=2.0, stop=1.0, run=60.0)
_FAILING = PodDelays(start=2.0, stop=1.0, run=60.0, exit_code=1)
_NEW = PodTimes(seen=100.0)
_RUNNING = PodTimes(seen=100.0, started=103.0)
_ENDING = PodTimes(seen=100.0, started=103.0, deleting=200.0)
_NEVER_STARTED = PodTimes(seen=100.0, deleting=101.0)


def _pod(phase: str, *, grace: int | None = None, finalizers: tuple[str, ...] = (), **spec: Any) -> Pod:
    deleted = None if grace is None else datetime(2026, 1, 1, tzinfo=UTC)
    metadata = ObjectMeta(
        name="p", deletion_timestamp=deleted, deletion_grace_period_seconds=grace, finalizers=list(finalizers)
    )
    return Pod(metadata=metadata, spec=PodSpec(**spec), status=PodStatus(phase=phase))


def _unready(pod: Pod) -> Pod:
    conditions = [PodCondition(type="Ready", status="False")]
    return replace(pod, status=replace(pod.status, conditions=conditions))


@pytest.mark.parametrize(
    ("pod", "times", "delays", "expected"),
    [
        pytest.param(_pod("Pending"), _NEW, _SERVICE, Plan(Step.START, 102.0), id="bound"),
        pytest.param(_pod("Running"), _RUNNING, _SERVICE, None, id="service runs for ever"),
        pytest.param(_unready(_pod("Running")), _RUNNING, _SERVICE, Plan(Step.REPORT, 103.0), id="marked as not ready"),
        pytest.param(
            _pod("Running", restart_policy="Never"), _RUNNING, _BATCH, Plan(Step.SUCCEED, 163.0), id="batch ends"
        ),
        pytest.param(
            _pod("Running", restart_policy="Never"), _RUNNING, _FAILING, Plan(Step.FAIL, 163.0), id="ends with an error"
        ),
        pytest.param(
            _pod("Running", restart_policy="OnFailure"), _RUNNING, _BATCH, Plan(Step.SUCCEED, 163.0), id="on failure"
        ),
        pytest.param(_pod("Running", restart_policy="Always"), _RUNNING, _BATCH, None, id="would be restarted"),
        pytest.param(_pod("Running"), _RUNNING, _BATCH, None, id="restart policy by default"),
        pytest.param(
            _pod("Running", restart_policy="Never", active_deadline_seconds=30),
            _RUNNING,
            _BATCH,
            Plan(Step.EXPIRE, 133.0),
            id="deadline first",
        ),
        pytest.param(
            _pod("Running", restart_policy="Never", active_deadline_seconds=90),
            _RUNNING,
            _BATCH,
            Plan(Step.SUCCEED, 163.0),
            id="done before the deadline",
        ),
        pytest.param(
            _pod("Running", active_deadline_seconds=9), _RUNNING, _SERVICE, Plan(Step.EXPIRE, 112.0), id="late"
        ),
        pytest.param(_pod("Succeeded"), _RUNNING, _BATCH, None, id="finished"),
        pytest.param(_pod("Failed"), _RUNNING, _BATCH, None, id="failed"),
        pytest.param(_pod("Running", grace=30), _ENDING, _SERVICE, Plan(Step.STOP, 201.0), id="deleted"),
        pytest.param(_pod("Running", grace=0), _ENDING, _SERVICE, Plan(Step.STOP, 200.0), id="deleted without grace"),
        pytest.param(
            _pod("Running", grace=30, restart_policy="Never"),
            _ENDING,
            _BATCH,
            Plan(Step.STOP, 201.0),
            id="batch deleted",
        ),
        pytest.param(_pod("Pending", grace=30), _NEVER_STARTED, _SERVICE, Plan(Step.STOP, 101.0), id="never started"),
        pytest.param(_pod("Failed", grace=30), _ENDING, _SERVICE, Plan(Step.REMOVE, 200.0), id="has ended"),
        pytest.param(
            _pod("Failed", grace=30, finalizers=("a/b",)), _ENDING, _SERVICE, Plan(Step.REMOVE, 200.0), id="confirm"
        ),
        pytest.param(_pod("Failed", grace=0, finalizers=("a/b",)), _ENDING, _SERVICE, None, id="confirmed already"),
        pytest.param(_pod("Failed", grace=0), _ENDING, _SERVICE, Plan(Step.REMOVE, 200.0), id="nothing holds it"),
    ],
)
def test_next_step(pod: Pod, times: PodTimes, delays: PodDelays, expected: Plan | None) -> None:
    assert next_step(pod, times, delays) == expected
