"""The status patches with which a kubelet moves a pod along, as strategic merge patches; pure.

Conditions merge by type, so that PodScheduled and those of other writers stay. The uid makes the API server refuse a
patch that was meant for an earlier pod of the same name.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, Final

from koordinator.api.pod import Container, Pod
from koordinator.api.timestamps import format_time

Document = dict[str, Any]

_TERMINATED_BY_SIGNAL: Final = 143
_COMPLETED: Final = "PodCompleted"


def running(pod: Pod, pod_ip: str, host_ip: str, now: datetime) -> Document:
    """All containers run and are ready."""
    moment = format_time(now)
    names = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    status: Document = {
        "phase": "Running",
        "conditions": [_condition(name, True, moment) for name in names],
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "startTime": moment,
        "containerStatuses": [
            _container(pod, container, {"running": {"startedAt": moment}}, ready=True)
            for container in pod.spec.containers
        ],
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [_init_container(pod, c, moment) for c in pod.spec.init_containers]
    return _patch(pod, status)


def is_marked_not_ready(pod: Pod) -> bool:
    """Whether the API shows that the pod is not ready."""
    return any(condition.type == "Ready" and condition.status == "False" for condition in pod.status.conditions)


def ready(pod: Pod, now: datetime) -> Document:
    """The pod is ready, whatever its status says."""
    return _patch(pod, {"conditions": [_condition("Ready", True, format_time(now))]})


def succeeded(pod: Pod, now: datetime) -> Document:
    """All containers have ended with 0."""
    return _ended(pod, now, {"phase": "Succeeded"}, exit_code=0, reason="Completed")


def failed(pod: Pod, now: datetime, exit_code: int) -> Document:
    """All containers have ended, with an exit code other than 0."""
    return _ended(pod, now, {"phase": "Failed"}, exit_code=exit_code, reason="Error")


def expired(pod: Pod, now: datetime) -> Document:
    """The pod ran into its deadline."""
    status = {
        "phase": "Failed",
        "reason": "DeadlineExceeded",
        "message": "Pod was active on the node longer than the specified deadline",
    }
    return _ended(pod, now, status, exit_code=_TERMINATED_BY_SIGNAL, reason="Error")


def stopped(pod: Pod, now: datetime) -> Document:
    """The containers were ended because the pod is being deleted; never to be taken for work that is done."""
    return _ended(pod, now, {"phase": "Failed"}, exit_code=_TERMINATED_BY_SIGNAL, reason="Error")


def _ended(pod: Pod, now: datetime, status: Document, exit_code: int, reason: str) -> Document:
    moment = format_time(now)
    began = format_time(pod.status.start_time or now)
    state = {"terminated": {"exitCode": exit_code, "reason": reason, "startedAt": began, "finishedAt": moment}}
    why = {"reason": _COMPLETED} if status["phase"] == "Succeeded" else {"reason": "PodFailed"}
    conditions = [
        {**_condition("PodReadyToStartContainers", False, moment)},
        {**_condition("Initialized", True, moment), **({"reason": _COMPLETED} if exit_code == 0 else {})},
        {**_condition("Ready", False, moment), **why},
        {**_condition("ContainersReady", False, moment), **why},
    ]
    was_initialized = any(c.type == "Initialized" and c.status == "True" for c in pod.status.conditions)
    if was_initialized:
        # Its moment of transition is long past.
        del conditions[1]["lastTransitionTime"]
    containers = [_container(pod, container, state, ready=False) for container in pod.spec.containers]
    return _patch(pod, {**status, "conditions": conditions, "containerStatuses": containers})


def _patch(pod: Pod, status: Document) -> Document:
    return {"metadata": {"uid": pod.metadata.uid}, "status": status}


def _condition(kind: str, holds: bool, moment: str) -> Document:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "lastProbeTime": None,
        "lastTransitionTime": moment,
        # A strategic merge keeps what is not named: an earlier reason has to be taken away.
        "reason": None,
        "message": None,
    }


def _container(pod: Pod, container: Container, state: Document, *, ready: bool) -> Document:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": f"simulated://{container.image}",
        "containerID": f"containerd://{hashlib.sha256(f'{pod.metadata.uid}/{container.name}'.encode()).hexdigest()}",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def _init_container(pod: Pod, container: Container, moment: str) -> Document:
    if container.restart_policy == "Always":
        return _container(pod, container, {"running": {"startedAt": moment}}, ready=True)
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": moment, "finishedAt": moment}
    return {**_container(pod, container, {"terminated": ended}, ready=True), "started": False}
