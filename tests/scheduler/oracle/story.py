"""A scheduler with the chart's profile beside a scripted cluster, one step after the other: each step is something that
happens on real clusters. After each, and after a restart, the scheduler knows what the objects say."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import fields
from datetime import datetime
from pprint import pformat
from typing import Any, Final, Self, cast

from koordinator.api.annotations import RESERVATION_ALLOCATED
from koordinator.api.codec import to_document
from koordinator.api.kinds import (
    CSI_NODES,
    DEVICES,
    ELASTIC_QUOTAS,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    RESERVATIONS,
    Kind,
)
from koordinator.api.timestamps import format_time
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.program import Scheduler
from tests.scheduler.broken_input.test_broken_objects import chart_profile
from tests.scheduler.oracle import documents
from tests.scheduler.oracle.documents import Document
from tests.scheduler.oracle.expected import Facts, NodeFacts, expected_facts
from tests.scheduler.oracle.known import assumed_pods, known_facts
from tests.scheduler.oracle.pictures import picture
from tests.scheduler.oracle.scripted_cluster import Fault, ScriptedCluster
from tests.scheduler.plugins.volumes.storage import DRIVER, claim, csi, csi_node, volume
from tests.scheduler.running_scheduler import MakeProfile, RunningScheduler
from tests.scheduler.scheduler_api import SchedulerApi
from tests.scheduler.watch.test_resync import Saboteur

KINDS: Final[tuple[Kind[Any], ...]] = (
    NODES, PODS, DEVICES, NODE_RESOURCE_TOPOLOGIES, NODE_METRICS, RESERVATIONS, ELASTIC_QUOTAS, POD_GROUPS,
    CSI_NODES, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS,
)  # fmt: skip
UNREADABLE: Final = "bad"


class Story:
    """What happens is told by the methods; ``close`` at its end, or a ``with`` around it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.cluster = ScriptedCluster()
        self._placed_before: set[str] = set()
        self._was_late = False
        self._start()

    def _start(self, now: datetime | None = None) -> None:
        self.fixture = self._scheduler(self._sabotaged, now)
        scheduler, stop = self.fixture.scheduler, self.fixture.stop
        self._tasks = [self.loop.create_task(each) for each in (scheduler.watch(), scheduler.schedule(stop))]
        self.settle()

    def _stop(self) -> None:
        async def cancel(tasks: list[asyncio.Task[Any]]) -> None:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.loop.run_until_complete(cancel(self._tasks))

    def restart(self) -> None:
        """The scheduler is killed, and another one starts. It is shown everything."""
        now = self.fixture.clock.now()
        self._stop()
        for kind in KINDS:
            self.cluster.catch_up(kind)
        self._start(now)

    def _scheduler(self, profile: MakeProfile, now: datetime | None) -> RunningScheduler:
        found = RunningScheduler(cast("SchedulerApi", self.cluster), profile, lambda pod, view: make_pod_info(pod))
        if now is not None:
            found.clock.set_wall(now)
        return found

    def _sabotaged(self, view: ClusterView) -> Profile:
        profile = chart_profile(view)
        self.saboteur = Saboteur(profile)
        return profile

    @property
    def scheduler(self) -> Scheduler:
        return self.fixture.scheduler

    def settle(self, seconds: float = 0.0) -> None:
        """Let everything happen that happens within so many seconds."""
        self.loop.run_until_complete(self.fixture.until_idle(seconds))
        for task in self._tasks:
            if task.done():
                task.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stop()
        self.loop.close()

    def placed(self) -> dict[str, str]:
        """Pod -> node."""
        pods = self.cluster.all(PODS)
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}

    # What has to hold.

    @property
    def is_late(self) -> bool:
        """Whether the scheduler, or one of its plugins, has not been shown everything."""
        return self.cluster.is_late or bool(self.scheduler.state.event_handlers.stale)

    def finish(self) -> None:
        """Everything is shown and answered, and what it began is over."""
        for kind in KINDS:
            self.cluster.catch_up(kind)
        self.bindings_fail("")
        self.patches_fail("")
        self.cluster.answer("")
        self.saboteur.left.clear()
        self.settle(90)
        if not self.scheduler.state.view.nominations.is_empty:
            # Longer than a pod waits until it is tried again without an event.
            self.settle(310)
        self.check()
        self.check_restarted()

    def check(self) -> None:
        """The scheduler knows what the objects say, as far as it has been shown these."""
        was_late, self._was_late = self._was_late, self.is_late
        expected = expected_facts(self.cluster, assumed_pods(self.scheduler))
        for name, node in expected.nodes.items():
            if self._new_on(node) and not was_late and not self._was_late:
                self._check_room(name, node)
        if self.is_late:
            return
        known = known_facts(self.scheduler)
        differences = _differences(known, expected)
        assert not differences, pformat(differences)

    def _new_on(self, node: NodeFacts) -> set[str]:
        """The uids of what the scheduler has placed there in this step, if nobody else has placed anything there."""
        self._new = node.pods - self._placed_before
        self._placed_before |= self._new
        return self._new if self._new <= {*self.cluster.ours, *assumed_pods(self.scheduler)} else set()

    def _check_room(self, name: str, node: NodeFacts) -> None:
        """There is room for what has just been placed."""
        for uid in self._new:
            others = expected_facts(self.cluster, assumed_pods(self.scheduler), without=uid).nodes[name]
            assert not node.too_much(others), f"{uid} was placed on {name}: {pformat(node.too_much(others))}"

    def check_restarted(self) -> None:
        """A scheduler that starts now knows and decides the same."""
        view = self.scheduler.state.view
        # No object says where a Reservation is going to be once its victims have left.
        nominated = any(view.nominations.node_of(uid) for uid in view.pseudo_pods)
        if self.is_late or self.scheduler.state.assumed_count or nominated:
            return
        now = self.fixture.clock.now()
        other = self._scheduler(chart_profile, now)
        watching = self.loop.create_task(other.scheduler.watch())
        self.loop.run_until_complete(other.until_idle())
        ours, theirs = picture(self.scheduler, now), picture(other.scheduler, now)
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            self.loop.run_until_complete(watching)
        differences = _different(ours, theirs)
        assert not differences, pformat(differences)

    # Nodes and what is about them.

    def put_node(self, name: str, size: int, *, cordoned: bool = False, tainted: bool = False) -> None:
        self.cluster.put(NODES, documents.node(name, size, cordoned=cordoned, tainted=tainted))

    def lose_node(self, name: str, *, collected: bool, size: int) -> None:
        """A node is deleted; then, ``collected``, its pods; and it comes back with another size."""
        self.cluster.remove(NODES, name)
        self.settle()
        for pod in self.cluster.all(PODS) if collected else ():
            if pod["spec"].get("nodeName") == name:
                self.cluster.remove(PODS, pod["metadata"]["name"], "default")
        self.settle()
        self.put_node(name, size)

    def try_in_vain(self, name: str, shape: str, fault: Fault) -> None:
        """A pod whose Binding fails until it is given up; it is in back-off then, or tried again."""
        before = self.cluster.binding_fault
        self.bindings_fail(fault)
        self.create_pod(name, shape)
        self.settle(8)
        self.bindings_fail(before)

    def put_device(self, name: str, count: int, *, healthy: bool = True) -> None:
        self.cluster.put(DEVICES, documents.device(name, count, healthy=healthy))

    def put_topology(self, name: str, cores: int) -> None:
        self.cluster.put(NODE_RESOURCE_TOPOLOGIES, documents.topology(name, cores))

    def put_metric(self, name: str, cpu: int) -> None:
        self.cluster.put(NODE_METRICS, documents.metric(name, cpu, format_time(self.fixture.clock.now())))

    # Pods.

    def pod(self, name: str) -> Document | None:
        return self.cluster.found(PODS, name, "default")

    def pods(self, *, placed: bool) -> list[str]:
        """The names of those that have a node, or have none."""
        found = {pod["metadata"]["name"]: bool(pod["spec"].get("nodeName")) for pod in self.cluster.all(PODS)}
        return sorted(name for name, has_node in found.items() if has_node is placed)

    def takes_from_a_reservation(self, name: str) -> bool:
        pod = self.pod(name)
        return pod is not None and RESERVATION_ALLOCATED in pod["metadata"].get("annotations", {})

    def create_pod(self, name: str, shape: str, size: int = 0) -> None:
        """A pod of this name that is there is another one, which is deleted."""
        self.cluster.remove(PODS, name, "default")
        self.cluster.put(PODS, documents.pod(name, shape, size))

    def place_elsewhere(self, name: str, shape: str, node_name: str, number: int, *, readable: bool = True) -> None:
        """Another scheduler has created and bound a pod."""
        found = self.cluster.found(RESERVATIONS, f"r{number % 2}")
        reserved = (found["metadata"]["name"], found["metadata"]["uid"]) if found else None
        written = documents.records(shape, number, reserved) if readable else documents.unreadable_records(shape)
        self.cluster.remove(PODS, name, "default")
        self.cluster.put(PODS, documents.placed(documents.pod(name, shape), node_name, written))

    def bind_elsewhere(self, name: str, node_name: str) -> None:
        """Another scheduler binds a pod that waits; not to the node that this one has chosen, with what the pod gets
        there."""
        pod = self.pod(name)
        if pod is None or self.scheduler.state.node_of(pod["metadata"]["uid"]) == node_name:
            return
        if not pod["spec"].get("nodeName"):
            shape = pod["metadata"]["labels"]["app"]
            annotations = documents.records(shape, 0, None) if shape != "owner" else {}
            self.cluster.put(PODS, documents.placed(pod, node_name, annotations))

    def resize(self, name: str, cpu: str, state: str) -> None:
        pod = self.pod(name)
        if pod is not None and pod["spec"].get("nodeName") and pod["spec"]["containers"] != UNREADABLE:
            self.cluster.put(PODS, documents.resized(pod, cpu, state))

    def label(self, name: str, key: str, value: str) -> None:
        pod = self.pod(name)
        if pod is not None:
            metadata = pod["metadata"]
            labels = {**metadata["labels"], key: value}
            self.cluster.put(PODS, {**pod, "metadata": {**metadata, "labels": labels}})

    def annotate(self, name: str, key: str, value: str) -> None:
        pod = self.pod(name)
        if pod is not None:
            metadata = pod["metadata"]
            annotations = {**metadata.get("annotations", {}), key: value}
            self.cluster.put(PODS, {**pod, "metadata": {**metadata, "annotations": annotations}})

    def get_ready(self, name: str) -> None:
        pod = self.pod(name)
        if pod is not None and pod["spec"].get("nodeName"):
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            self.cluster.put(PODS, {**pod, "status": {**pod.get("status", {}), **ready}})

    def terminate(self, name: str) -> None:
        """It is being deleted, and is there until its kubelet has stopped it."""
        pod = self.pod(name)
        if pod is not None:
            since = {"deletionTimestamp": format_time(self.fixture.clock.now()), "deletionGracePeriodSeconds": 30}
            self.cluster.put(PODS, {**pod, "metadata": {**pod["metadata"], **since}})

    def finish_pod(self, name: str) -> None:
        pod = self.pod(name)
        if pod is not None and pod["spec"].get("nodeName"):
            self.cluster.put(PODS, {**pod, "status": {**pod.get("status", {}), "phase": "Succeeded"}})

    def place_unreadable(self, name: str, node_name: str) -> None:
        """A pod runs that no scheduler can decode."""
        self.cluster.remove(PODS, name, "default")
        found = documents.placed(documents.pod(name, "plain"), node_name, {})
        self.cluster.put(PODS, {**found, "spec": {**found["spec"], "containers": UNREADABLE}})

    # Volumes.

    def put_claim(self, name: str, handle: str) -> None:
        """A claim with its volume."""
        self.cluster.put(PERSISTENT_VOLUME_CLAIMS, to_document(claim(name, f"{name}-volume", of="")))
        there = volume(f"{name}-volume", to=name, of="", csi=csi(handle))
        self.cluster.put(PERSISTENT_VOLUMES, to_document(there))

    def put_csi_node(self, name: str, limit: int) -> None:
        self.cluster.put(CSI_NODES, to_document(csi_node(name, {DRIVER: limit})))

    # Reservations, quotas and gangs.

    def reserve(self, name: str, shape: str, size: int = 0, *, node: str = "", **spec: Any) -> None:
        """A new Reservation, in place of an earlier one; available at once if it is given a node."""
        self.cluster.remove(RESERVATIONS, name)
        found = documents.reservation(name, shape, size, **spec)
        if node:
            found = documents.available(found, node, documents.records(shape, size, None))
        self.cluster.put(RESERVATIONS, found)

    def resize_reservation(self, name: str, cpu: int) -> None:
        found = self.cluster.found(RESERVATIONS, name)
        if found is not None and found.get("status", {}).get("phase") == "Available":
            status = {**found["status"], "allocatable": {**found["status"]["allocatable"], "cpu": str(cpu)}}
            self.cluster.put(RESERVATIONS, {**found, "status": status})

    def end_reservation(self, name: str, phase: str) -> None:
        found = self.cluster.found(RESERVATIONS, name)
        if found is not None:
            self.cluster.put(RESERVATIONS, {**found, "status": {**found.get("status", {}), "phase": phase}})

    def put_quota(self, name: str, cpu: int, *, parent: bool = False) -> None:
        self.cluster.put(ELASTIC_QUOTAS, documents.quota(name, cpu, documents.TEAM if parent else None))

    def put_pod_group(self, minimum: int) -> None:
        self.cluster.put(POD_GROUPS, documents.pod_group(minimum))

    # What fails.

    def bindings_fail(self, fault: Fault) -> None:
        self.cluster.binding_fault = fault

    def patches_fail(self, fault: Fault) -> None:
        self.cluster.patch_fault = fault

    def handler_fails(self, name: str, point: str, lines: int) -> None:
        """The next call of the method of an event handler fails when so many lines have run."""
        self.saboteur.left[name, point], self.saboteur.lines[name, point] = 1, lines


def _differences(known: Facts, expected: Facts) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in ("reservations", "quotas", "gangs"):
        ours, theirs = getattr(known, part), getattr(expected, part)
        found |= {
            f"{part} {key}": (ours.get(key), theirs.get(key))
            for key in {*ours, *theirs}
            if ours.get(key) != theirs.get(key)
        }
    for name in {*known.nodes, *expected.nodes}:
        one, other = known.nodes.get(name), expected.nodes.get(name)
        if one is None or other is None:
            found[name] = one, other
            continue
        found |= {
            f"{name} {field}": (getattr(one, field), getattr(other, field))
            for field in (each.name for each in fields(one) if each.compare)
            if getattr(one, field) != getattr(other, field)
        }
    return found


def _different(ours: Document, theirs: Document) -> dict[str, Any]:
    """The paths at which the two differ, with both values."""
    found: dict[str, Any] = {}
    for key in {*ours, *theirs}:
        one, other = ours.get(key), theirs.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            found |= {f"{key}.{path}": each for path, each in _different(one, other).items()}
        elif one != other:
            found[str(key)] = one, other
    return found
