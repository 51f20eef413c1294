"""Scenarios of Reservations, run with a scheduler as a process on a real API server: what becomes of both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from koordinator.api.annotations import (
    EXACT_MATCH_RESERVATION,
    RESERVATION_AFFINITY,
    RESERVATION_ALLOCATED,
    RESERVATION_OWNERS,
)
from koordinator.api.kinds import NODES, POD_DISRUPTION_BUDGETS, PODS, RESERVATIONS, Kind
from koordinator.api.reservation import Reservation
from koordinator.kube.client import KubeClient
from koordinator.kube.event_series import EVENTS_V1
from koordinator.kube.interface import PatchType
from koordinator.scheduler.cycle.failure_report import scheduled_condition
from tests.real.control_plane import ControlPlane
from tests.real.decisions.original import original_scheduler
from tests.real.programs import RealPrograms
from tests.real.quota_runs import delete_if_there, is_decided, our_scheduler
from tests.real.scheduler_configuration import write_configuration
from tests.real.watched import Watched, watching

LASTING_NODES: Final = ("node-0", "node-1")
"""Of all scenarios; others are deleted at the end of the scenario that has added them."""
_DECIDED: Final = 60.0
_SETTLED: Final = 40.0
_QUIET: Final = 2.5
_LOOK: Final = 0.2


def profile(**args: Any) -> dict[str, Any]:
    """Reservation where Koordinator's own configuration has it."""
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "ReservationArgs"}
    plugin = {"name": "Reservation"}
    points = {point: {"enabled": [plugin]} for point in ("preFilter", "filter", "preScore", "reserve", "preBind")}
    return {
        "schedulerName": "koord-scheduler",
        "plugins": {
            **points,
            "postFilter": {"disabled": [{"name": "*"}], "enabled": [plugin]},
            "score": {"enabled": [{**plugin, "weight": 5000}]},
            "bind": {"disabled": [{"name": "*"}], "enabled": [plugin, {"name": "DefaultBinder"}]},
        },
        "pluginConfig": [{"name": "Reservation", "args": {**header, **args}}],
    }


def _container(cpu: str, memory: str) -> dict[str, Any]:
    return {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": memory}}}


def reservation(
    name: str,
    cpu: str = "3",
    memory: str = "1Gi",
    *,
    node: str = "",
    owner: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    template: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A Reservation for pods with the label app=web; ``node`` is the only one that its template selects, ``template``
    what else is in the spec of that."""
    pod_spec = {"schedulerName": "koord-scheduler", "containers": [_container(cpu, memory)], **(template or {})}
    if node:
        pod_spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    owners = [owner if owner is not None else {"labelSelector": {"matchLabels": {"app": "web"}}}]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})},
        "spec": {"template": {"spec": pod_spec}, "owners": owners, **spec},
    }


def pod(
    name: str,
    cpu: str = "3",
    memory: str = "512Mi",
    *,
    app: str = "web",
    node: str = "",
    affinity: Mapping[str, Any] | None = None,
    exact: Sequence[str] = (),
    owners: Sequence[Mapping[str, Any]] | None = None,
    priority: int | None = None,
    leaves_in: int = 0,
    **labels: str,
) -> dict[str, Any]:
    """A pod; ``affinity`` is its reservation affinity, ``node`` the only one that it selects, ``owners`` those of an
    operating-mode pod; ``priority`` 0, 5 or 10. ``leaves_in``: not 0, it stays until the step that deletes it, since
    there is no kubelet."""
    annotations = {}
    if affinity is not None:
        annotations[RESERVATION_AFFINITY] = json.dumps(affinity)
    if exact:
        annotations[EXACT_MATCH_RESERVATION] = json.dumps({"resourceNames": list(exact)})
    if owners is not None:
        annotations[RESERVATION_OWNERS] = json.dumps(list(owners))
    known = {f"scheduling.koordinator.sh/{key.replace('_', '-')}": value for key, value in labels.items()}
    spec: dict[str, Any] = {
        "schedulerName": "koord-scheduler",
        "containers": [_container(cpu, memory)],
        "terminationGracePeriodSeconds": leaves_in,
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    if priority is not None:
        spec["priorityClassName"] = f"p{priority}"
    return {
        "metadata": {"name": name, "labels": {"app": app, **known}, "annotations": annotations},
        "spec": spec,
    }


@dataclass(frozen=True)
class Delete:
    """A pod, or a Reservation or Node if ``kind`` says so."""

    name: str
    kind: str = "Pod"


@dataclass(frozen=True)
class Change:
    """A merge patch of a Reservation."""

    name: str
    patch: Mapping[str, Any]


@dataclass(frozen=True)
class Ready:
    """The pod runs and is ready, with a message of the condition."""

    name: str
    message: str = ""


@dataclass(frozen=True)
class Resize:
    """The pod is to request other CPUs from now on, on the node that it has."""

    name: str
    cpu: str


@dataclass(frozen=True)
class Granted:
    """What the kubelet says of the pod's container: the CPUs that are allocated to it, and those that it runs with;
    ``pending``: why its resize waits."""

    name: str
    allocated: str
    runs: str
    pending: str = ""


@dataclass(frozen=True)
class Record:
    """The Reservation's name and uid are written on the pod by hand; or, without a name, the record is taken off."""

    pod: str
    reservation: str = ""


@dataclass(frozen=True)
class Protect:
    """From now on, no pod with the label app=``app`` may be disrupted."""

    app: str


@dataclass(frozen=True)
class AddNode:
    """Of 4 CPUs and 8 GiB."""

    name: str
    annotations: Mapping[str, str] = field(default_factory=dict)


Step = Mapping[str, Any] | Delete | Change | Ready | Resize | Granted | Record | Protect | AddNode
"""A document is created and waited for until it is decided about."""


@dataclass(frozen=True)
class Scenario:
    name: str
    steps: tuple[Step, ...]


@dataclass
class Outcome:
    """``pods``: name -> (why it has no node, or "", the Reservation that it takes from). ``reservations``: name -> what
    its status says, without times. ``events``: name -> (type, reason) of its events, but for those
    that only ours has, see differences.md."""

    pods: dict[str, tuple[str, str]] = field(default_factory=dict)
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: dict[str, set[tuple[str, str]]] = field(default_factory=dict)


@contextmanager
def running(
    who: str, programs: RealPrograms, plane: ControlPlane, folder: Path, *, port: int = 0, **args: Any
) -> Iterator[None]:
    """The scheduler ``ours`` or ``original``, with arguments of the plugin. ``port``: of its services; 0 for none."""
    configuration = write_configuration(
        folder / "scheduler.yaml",
        kubeconfig=plane.kubeconfig,
        profile=profile(**args),
        podInitialBackoffSeconds=1,
        podMaxBackoffSeconds=1,
    )
    if who == "ours":
        with our_scheduler(plane, configuration, folder / "ours.log", f"--port={port}"):
            yield
    else:
        with original_scheduler(programs, plane, configuration, folder / "original.log", f"--port={port}"):
            yield


@asynccontextmanager
async def watched_reservations(client: KubeClient) -> AsyncIterator[Watched]:
    """Pods, Reservations and events, for the functions below. The cluster has been prepared."""
    async with watching(client, (PODS, "default"), (RESERVATIONS, ""), (EVENTS_V1, "default")) as watched:
        yield watched


async def play(watched: Watched, scenario: Scenario) -> Outcome:
    """Run the scenario and clean up behind it."""
    try:
        return await act(watched, scenario.steps)
    finally:
        await clean(watched.client)


async def act(watched: Watched, steps: Sequence[Step]) -> Outcome:
    """Take the steps one after another; what they have come to once nothing changes any more."""
    for step in steps:
        if step is not steps[0]:
            # What follows from the step before is heard of by watches, and nothing shows that it has been;
            # controllers look each second.
            await asyncio.sleep(1.2)
        await _take(watched, step)
    return await _settled(watched)


async def _take(watched: Watched, step: Step) -> None:
    client = watched.client
    if isinstance(step, AddNode):
        await _add_node(client, step)
    elif isinstance(step, Delete):
        await _delete(client, step)
    elif isinstance(step, Change):
        await client.patch(RESERVATIONS, step.name, step.patch, PatchType.MERGE)
    elif isinstance(step, Ready):
        condition = {"type": "Ready", "status": "True", "message": step.message}
        status = {"phase": "Running", "conditions": [condition]}
        await client.patch(PODS, step.name, {"status": status}, PatchType.STRATEGIC, "default", subresource="status")
    elif isinstance(step, Resize):
        container = {"name": "main", "resources": {"requests": {"cpu": step.cpu}}}
        spec = {"spec": {"containers": [container]}}
        await client.patch(PODS, step.name, spec, PatchType.STRATEGIC, "default", subresource="resize")
    elif isinstance(step, Granted):
        await client.patch(PODS, step.name, _granted(step), PatchType.MERGE, "default", subresource="status")
    elif isinstance(step, Record):
        text = None
        if step.reservation:
            found = await client.get(RESERVATIONS, step.reservation)
            text = json.dumps({"name": step.reservation, "uid": found.metadata.uid})
        patch = {"metadata": {"annotations": {RESERVATION_ALLOCATED: text}}}
        await client.patch(PODS, step.pod, patch, PatchType.MERGE, "default")
    elif isinstance(step, Protect):
        selector = {"matchLabels": {"app": step.app}}
        document = {"metadata": {"name": step.app}, "spec": {"minAvailable": 1, "selector": selector}}
        # There is no disruption controller, and none allowed is what the status says without one.
        await client.create(POD_DISRUPTION_BUDGETS, document, "default")
    elif step.get("kind") == "Reservation":
        await client.create(RESERVATIONS, dict(step))
        name = step["metadata"]["name"]
        assert await watched.until(lambda: _has_conditions(watched, name), _DECIDED), f"{name} is not decided about"
    else:
        await client.create(PODS, dict(step), "default")
        name = step["metadata"]["name"]
        assert await watched.until(lambda: is_decided(watched, name), _DECIDED), f"{name} is not decided about"


def _granted(step: Granted) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "pause",
        "imageID": "pause",
        "ready": True,
        "restartCount": 0,
        "allocatedResources": {"cpu": step.allocated, "memory": "512Mi"},
        "resources": {"requests": {"cpu": step.runs, "memory": "512Mi"}},
    }
    pending = {"type": "PodResizePending", "status": "True", "reason": step.pending}
    conditions = [{"type": "PodScheduled", "status": "True"}, *([pending] if step.pending else [])]
    return {"status": {"phase": "Running", "containerStatuses": [container], "conditions": conditions}}


async def _add_node(client: KubeClient, step: AddNode) -> None:
    labels = {"kubernetes.io/hostname": step.name}
    metadata = {"name": step.name, "labels": labels, "annotations": dict(step.annotations)}
    resources = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    status = {"capacity": resources, "allocatable": resources}
    await client.create(NODES, {"metadata": metadata, "status": status})


async def _delete(client: KubeClient, step: Delete) -> None:
    match step.kind:
        case "Pod":
            await client.delete(PODS, step.name, "default", grace_period_seconds=0)
        case "Node":
            await client.delete(NODES, step.name)
        case _:
            await client.delete(RESERVATIONS, step.name)


def _has_conditions(watched: Watched, name: str) -> bool:
    found = watched.get(RESERVATIONS, name)
    return found is not None and bool(found.status.conditions)


async def outcome(watched: Watched) -> Outcome:
    """How pods and Reservations look now."""
    found, there = Outcome(), set[tuple[str, str]]()
    for each in watched.list(PODS):
        there.add((each.metadata.name, each.metadata.uid))
        condition = scheduled_condition(each)
        message = condition.message if condition is not None else "not decided"
        record = json.loads(each.metadata.annotations.get(RESERVATION_ALLOCATED, "{}"))
        found.pods[each.metadata.name] = "" if each.spec.node_name else message, record.get("name", "")
    for other in watched.list(RESERVATIONS):
        found.reservations[other.metadata.name] = _shown(other)
        there.add((other.metadata.name, other.metadata.uid))
    for event in json.loads(await watched.client.raw("GET", EVENTS_V1.path("default")))["items"]:
        about = event["regarding"]
        # The original has more about pods that are named by the uid of a Reservation, and are not there.
        if (about["name"], about.get("uid")) in there and event["reason"] != "InvalidReservation":
            found.events.setdefault(about["name"], set()).add((event["type"], event["reason"]))
    return found


def _shown(found: Reservation) -> dict[str, Any]:
    status = found.status
    return {
        "phase": status.phase,
        "placed": bool(status.node_name),
        "owners": sorted(each.name for each in status.current_owners),
        "allocatable": {name: amount for name, amount in status.allocatable.items() if amount},
        "allocated": {name: amount for name, amount in status.allocated.items() if amount},
        "conditions": sorted((each.type, each.status, each.reason, each.message) for each in status.conditions),
    }


async def _settled(watched: Watched) -> Outcome:
    """The outcome when it has not changed for a while."""
    clock = asyncio.get_running_loop().time
    seen, last, since = watched.changes, await outcome(watched), clock()
    end = since + _SETTLED
    while (now := clock()) < end and now - since <= _QUIET:
        await asyncio.sleep(_LOOK)
        if watched.changes != seen:
            seen, found = watched.changes, await outcome(watched)
            if found != last:
                last, since = found, now
    return last


async def clean(client: KubeClient) -> None:
    """Delete what steps have left."""
    kinds: Sequence[tuple[Kind[Any], str]] = (
        *((PODS, "default"), (RESERVATIONS, "")),
        *((POD_DISRUPTION_BUDGETS, "default"), (NODES, "")),
    )
    for kind, namespace in kinds:
        for each in (await client.list(kind, namespace)).items:
            if kind is not NODES or each.metadata.name not in LASTING_NODES:
                await delete_if_there(client, kind, each.metadata.name, namespace)
    await asyncio.sleep(1)
