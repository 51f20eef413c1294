"""The status patches with which a kubelet moves a pod along, as strategic merge patches; pure.

Conditions merge by type, so that PodScheduled and those of other writers stay. The uid makes the API server refuse a
patch that was meant for an earlier pod of the same name.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, Final

from koordinator.api.pod import Container, Pod, PodCondition, ResourceRequirements
from koordinator.api.timestamps import format_time
from koordinator.cluster.nodes.pod_resize import Pending, granted, restarts
from koordinator.cluster.nodes.simulated_pod import SimulatedContainerStatus, SimulatedPod

Document = dict[str, Any]

_TERMINATED_BY_SIGNAL: Final = 143
_COMPLETED: Final = "PodCompleted"
_SCHEDULED: Final = "PodScheduled"
_RESIZE_PENDING: Final = "PodResizePending"


def running(pod: SimulatedPod, pod_ip: str, host_ip: str, now: datetime) -> Document:
    """All containers run and are ready."""
    moment = format_time(now)
    names = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"]
    if not any(each.type == _SCHEDULED for each in pod.status.conditions):
        # Its author has chosen the node.
        names.append(_SCHEDULED)
    status: Document = {
        "phase": "Running",
        "conditions": [_condition(pod, name, True, moment) for name in names],
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "startTime": moment,
        "containerStatuses": [_running(pod, container, moment) for container in pod.spec.containers],
        **_ephemeral(pod, moment),
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [_init_container(pod, c, moment) for c in pod.spec.init_containers]
    return _patch(pod, status)


def caught_up(pod: SimulatedPod, pending: Pending | None, now: datetime) -> Document | None:
    """The node has seen the spec as it is now: it has resized the containers, unless something keeps it from that, and
    started the ephemeral ones. None where the API shows that already."""
    shown = _pending_condition(pod)
    if has_seen_spec(pod) and pending == (shown and Pending(shown.reason, shown.message)):
        return None
    moment = format_time(now)
    kept, again = ({}, restarts(pod)) if pending is None else (granted(pod), frozenset[str]())
    condition: Document = {"type": _RESIZE_PENDING, "$patch": "delete"}
    if pending is not None:
        condition = {**_condition(pod, _RESIZE_PENDING, True, moment), **pending._asdict()}
        if shown is not None:
            # Only another reason.
            del condition["lastTransitionTime"]
    containers = [
        _running(pod, each, moment, kept.get(each.name), is_new=each.name in again) for each in pod.spec.containers
    ]
    found: Document = {"containerStatuses": containers, "conditions": [condition], **_ephemeral(pod, moment)}
    if pod.spec.init_containers:
        found["initContainerStatuses"] = [
            _init_container(pod, each, moment, kept.get(each.name), is_new=each.name in again)
            for each in pod.spec.init_containers
        ]
    return _patch(pod, found)


def has_seen_spec(pod: Pod) -> bool:
    """Whether the status is about the spec as it is now."""
    return (pod.status.observed_generation or 0) >= pod.metadata.generation


def is_resize_deferred(pod: Pod) -> bool:
    """Whether the node waits for other pods to make room."""
    condition = _pending_condition(pod)
    return condition is not None and condition.reason == "Deferred"


def _pending_condition(pod: Pod) -> PodCondition | None:
    return next((each for each in pod.status.conditions if each.type == _RESIZE_PENDING), None)


def is_marked_not_ready(pod: Pod) -> bool:
    """Whether the API shows that the pod is not ready."""
    return any(condition.type == "Ready" and condition.status == "False" for condition in pod.status.conditions)


def ready(pod: Pod, now: datetime) -> Document:
    """The pod is ready, whatever its status says."""
    return _patch(pod, {"conditions": [_condition(pod, "Ready", True, format_time(now))]})


def succeeded(pod: SimulatedPod, now: datetime) -> Document:
    """All containers have ended with 0."""
    return _ended(pod, now, {"phase": "Succeeded"}, exit_code=0, reason="Completed")


def failed(pod: SimulatedPod, now: datetime, exit_code: int) -> Document:
    """All containers have ended, with an exit code other than 0."""
    return _ended(pod, now, {"phase": "Failed"}, exit_code=exit_code, reason="Error")


def expired(pod: SimulatedPod, now: datetime) -> Document:
    """The pod ran into its deadline."""
    status = {
        "phase": "Failed",
        "reason": "DeadlineExceeded",
        "message": "Pod was active on the node longer than the specified deadline",
    }
    return _ended(pod, now, status, exit_code=_TERMINATED_BY_SIGNAL, reason="Error")


def stopped(pod: SimulatedPod, now: datetime) -> Document:
    """The containers were ended because the pod is being deleted; never to be taken for work that is done."""
    return _ended(pod, now, {"phase": "Failed"}, exit_code=_TERMINATED_BY_SIGNAL, reason="Error")


def _ended(pod: SimulatedPod, now: datetime, status: Document, exit_code: int, reason: str) -> Document:
    moment = format_time(now)
    ending = {"exitCode": exit_code, "reason": reason, "finishedAt": moment}
    why = {"reason": _COMPLETED} if status["phase"] == "Succeeded" else {"reason": "PodFailed"}
    conditions = [
        {**_condition(pod, "PodReadyToStartContainers", False, moment)},
        {**_condition(pod, "Initialized", True, moment), **({"reason": _COMPLETED} if exit_code == 0 else {})},
        {**_condition(pod, "Ready", False, moment), **why},
        {**_condition(pod, "ContainersReady", False, moment), **why},
    ]
    was_initialized = any(c.type == "Initialized" and c.status == "True" for c in pod.status.conditions)
    if was_initialized:
        # Its moment of transition is long past.
        del conditions[1]["lastTransitionTime"]
    had = granted(pod)
    containers = []
    for each in pod.spec.containers:
        state = {"terminated": {**ending, "startedAt": _start(pod, each, moment)}}
        containers.append(_container(pod, each, state, ready=False, resources=had[each.name]))
    ended = {**status, "conditions": conditions, "containerStatuses": containers}
    return _patch(pod, {**ended, **_ephemeral(pod, moment, ending)})


def _patch(pod: Pod, status: Document) -> Document:
    generation = {"observedGeneration": pod.metadata.generation} if pod.metadata.generation else {}
    return {"metadata": {"uid": pod.metadata.uid}, "status": {**status, **generation}}


def _condition(pod: Pod, kind: str, holds: bool, moment: str) -> Document:
    return {
        "type": kind,
        **({"observedGeneration": pod.metadata.generation} if pod.metadata.generation else {}),
        "status": "True" if holds else "False",
        "lastProbeTime": None,
        "lastTransitionTime": moment,
        # A strategic merge keeps what is not named: an earlier reason has to be taken away.
        "reason": None,
        "message": None,
    }


def _running(
    pod: SimulatedPod,
    container: Container,
    moment: str,
    resources: ResourceRequirements | None = None,
    *,
    is_new: bool = False,
) -> Document:
    """It goes on if it runs, unless it ``is_new`` since this moment."""
    state = {"running": {"startedAt": moment if is_new else _start(pod, container, moment)}}
    status = _container(pod, container, state, ready=True, resources=resources)
    return {**status, "restartCount": status["restartCount"] + is_new}


def _start(pod: SimulatedPod, container: Container, moment: str) -> str:
    """Since when it has run; ``moment`` where it does not yet."""
    status = _status(pod, container)
    running = None if status is None else status.state.running
    return moment if running is None or running.started_at is None else format_time(running.started_at)


def _status(pod: SimulatedPod, container: Container) -> SimulatedContainerStatus | None:
    status = pod.status
    kinds = (status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses)
    return next((each for kind in kinds for each in kind if each.name == container.name), None)


def _container(
    pod: SimulatedPod,
    container: Container,
    state: Document,
    *,
    ready: bool,
    resources: ResourceRequirements | None = None,
) -> Document:
    """With what it has been granted, which is what its spec says unless ``resources`` are given."""
    before, had = _status(pod, container), container.resources if resources is None else resources
    requests, limits = ({name: str(amount) for name, amount in each.items()} for each in (had.requests, had.limits))
    return {
        "name": container.name,
        "image": container.image,
        "imageID": f"simulated://{container.image}",
        "containerID": f"containerd://{hashlib.sha256(f'{pod.metadata.uid}/{container.name}'.encode()).hexdigest()}",
        "ready": ready,
        "started": ready,
        "restartCount": 0 if before is None else before.restart_count,
        "state": state,
        "lastState": {},
        **({"allocatedResources": requests} if requests else {}),
        "resources": {**({"limits": limits} if limits else {}), **({"requests": requests} if requests else {})},
    }


def _ephemeral(pod: SimulatedPod, moment: str, ending: Document | None = None) -> Document:
    """Those that have joined the pod go on as they are, new ones start; with an ``ending``, all end."""
    statuses = []
    for each in pod.spec.ephemeral_containers:
        began = {"startedAt": _start(pod, each, moment)}
        state = {"running": began} if ending is None else {"terminated": {**ending, **began}}
        statuses.append(_container(pod, each, state, ready=False))
        del statuses[-1]["resources"], statuses[-1]["started"]
    return {"ephemeralContainerStatuses": statuses} if statuses else {}


def _init_container(
    pod: SimulatedPod,
    container: Container,
    moment: str,
    resources: ResourceRequirements | None = None,
    *,
    is_new: bool = False,
) -> Document:
    if container.restart_policy == "Always":
        return _running(pod, container, moment, resources, is_new=is_new)
    began = moment if pod.status.start_time is None else format_time(pod.status.start_time)
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": began, "finishedAt": began}
    return {**_container(pod, container, {"terminated": ended}, ready=True, resources=resources), "started": False}
