"""The status patches with which a kubelet moves a pod along, as strategic merge patches; pure.

Conditions merge by type, so that PodScheduled and those of other writers stay. The uid makes the API server refuse a
patch that was meant for an earlier pod of the same name.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, Final

from koordinator.api.pod import Container, Pod, ResourceRequirements
from koordinator.api.timestamps import format_time
from koordinator.cluster.nodes.pod_commands import PodWithCommands
from koordinator.cluster.nodes.pod_resize import Pending, granted, restarts

Document = dict[str, Any]

_TERMINATED_BY_SIGNAL: Final = 143
_COMPLETED: Final = "PodCompleted"
_RESIZE_PENDING: Final = "PodResizePending"


def running(pod: Pod, pod_ip: str, host_ip: str, now: datetime) -> Document:
    """All containers run and are ready."""
    moment = format_time(now)
    names = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    status: Document = {
        "phase": "Running",
        "conditions": [_condition(pod, name, True, moment) for name in names],
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "startTime": moment,
        "containerStatuses": [
            _container(pod, container, {"running": {"startedAt": moment}}, ready=True)
            for container in pod.spec.containers
        ],
        **_ephemeral(pod, moment),
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [_init_container(pod, c, moment) for c in pod.spec.init_containers]
    return _patch(pod, status)


def caught_up(pod: Pod, pending: Pending | None, now: datetime) -> Document:
    """The node has seen the spec as it is now: it has resized the containers, unless something keeps it from that, and
    started the ephemeral ones."""
    moment = format_time(now)
    began, known = format_time(pod.status.start_time or now), granted(pod)
    counts = {each.name: each.restart_count for each in pod.status.container_statuses}
    containers = []
    for container in pod.spec.containers:
        again = pending is None and restarts(container, known[container.name])
        resources = container.resources if pending is None else known[container.name]
        state = {"running": {"startedAt": moment if again else began}}
        status = _container(pod, container, state, ready=True, resources=resources)
        containers.append({**status, "restartCount": counts.get(container.name, 0) + again})
    condition: Document = {"type": _RESIZE_PENDING, "$patch": "delete"}
    if pending is not None:
        condition = {**_condition(pod, _RESIZE_PENDING, True, moment), **pending._asdict()}
    found: Document = {"containerStatuses": containers, "conditions": [condition], **_ephemeral(pod, moment)}
    if pod.spec.init_containers:
        found["initContainerStatuses"] = [
            _init_container(pod, each, began, each.resources if pending is None else known[each.name])
            for each in pod.spec.init_containers
        ]
    return _patch(pod, found)


def is_resize_deferred(pod: Pod) -> bool:
    """Whether the node waits for other pods to leave."""
    return any(each.type == _RESIZE_PENDING and each.reason == "Deferred" for each in pod.status.conditions)


def is_marked_not_ready(pod: Pod) -> bool:
    """Whether the API shows that the pod is not ready."""
    return any(condition.type == "Ready" and condition.status == "False" for condition in pod.status.conditions)


def ready(pod: Pod, now: datetime) -> Document:
    """The pod is ready, whatever its status says."""
    return _patch(pod, {"conditions": [_condition(pod, "Ready", True, format_time(now))]})


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
    containers = [_container(pod, each, state, ready=False, resources=had[each.name]) for each in pod.spec.containers]
    ended = {**status, "conditions": conditions, "containerStatuses": containers}
    return _patch(pod, {**ended, **_ephemeral(pod, began, {"terminated": state["terminated"]})})


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


def _container(
    pod: Pod, container: Container, state: Document, *, ready: bool, resources: ResourceRequirements | None = None
) -> Document:
    """With what it has been granted, which is what its spec says unless ``resources`` are given."""
    had = container.resources if resources is None else resources
    requests, limits = ({name: str(amount) for name, amount in each.items()} for each in (had.requests, had.limits))
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
        **({"allocatedResources": requests} if requests else {}),
        "resources": {**({"limits": limits} if limits else {}), **({"requests": requests} if requests else {})},
    }


def _ephemeral(pod: Pod, moment: str, state: Document | None = None) -> Document:
    """Those that have joined the pod go on as they are; new ones start."""
    if not isinstance(pod, PodWithCommands) or not pod.spec.ephemeral_containers:
        return {}
    state = state or {"running": {"startedAt": moment}}
    statuses = [_container(pod, each, state, ready=False) for each in pod.spec.ephemeral_containers]
    for status in statuses:
        del status["resources"], status["started"]
    return {"ephemeralContainerStatuses": statuses}


def _init_container(
    pod: Pod, container: Container, moment: str, resources: ResourceRequirements | None = None
) -> Document:
    if container.restart_policy == "Always":
        return _container(pod, container, {"running": {"startedAt": moment}}, ready=True, resources=resources)
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": moment, "finishedAt": moment}
    return {**_container(pod, container, {"terminated": ended}, ready=True), "started": False}
