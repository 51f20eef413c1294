"""The workload behind a pod: how many replicas it is to have, and which pods are its own.

The kinds of Kubernetes and of OpenKruise come from informers. Any other kind is read through its subresource scale
before a decision, and remembered for a short while for filters, which cannot wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from koordinator.api.codec import DecodeError, decode
from koordinator.api.meta import Object, OwnerReference, WireStruct, controller_of
from koordinator.api.pod import Pod
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.descheduler.migration.lister import MigrationLister
from koordinator.kube.discovery import ObjectName, ObjectPaths, UnknownKindError
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.informer import Informer
from koordinator.kube.interface import Client

FRESH: Final = 600.0
"""Seconds after which a scale is read anew, though no pod of its workload has come or gone since; the arbitrator reads
it more often."""
_RETRY: Final = 15.0
"""Seconds after which one that could not be read is."""
_FORGET: Final = 2 * FRESH
_REMEMBERED: Final = 4096
"""Workloads."""
_AT_ONCE: Final = 8
"""Requests in flight."""


class _ScaleSpec(WireStruct):
    replicas: int = 0


class _Scale(Object):
    spec: _ScaleSpec = _ScaleSpec()


class WorkloadUnknownError(KoordinatorError):
    """It could not be found out how many replicas a workload is to have."""


@dataclass(frozen=True, slots=True)
class Workload:
    """``replicas`` are the desired ones; ``uids`` own the pods."""

    replicas: int
    uids: tuple[str, ...]
    is_leaving: bool = False


_NONE: Final = Workload(0, ())


@dataclass(frozen=True, slots=True)
class _Reading:
    workload: Workload | None
    problem: str
    at: float

    def is_due(self, now: float, older_than: float) -> bool:
        return now - self.at >= (older_than if self.workload is not None else min(older_than, _RETRY))


class Workloads:
    """Finds workloads by the reference that a pod has to its controller."""

    def __init__(self, cluster: MigrationLister, client: Client, clock: Clock) -> None:
        self._cluster = cluster
        self._client = client
        self._clock = clock
        self._scales: dict[tuple[str, str], _Reading] = {}
        self._changed: set[str] = set()
        """The uids of controllers of which a pod has come or gone since their scales were read."""
        cluster.pods.add_handlers(
            name="migration, workloads", on_add=lambda pod, _: self._note_change(pod), on_delete=self._note_change
        )
        self._known = lru_cache(_REMEMBERED)(self._find)
        """Of the kinds that have informers, until any of their objects changes."""
        self._paths = ObjectPaths(client)
        informers: dict[tuple[str, str], Informer[Any]] = {
            ("", "ReplicationController"): cluster.replication_controllers,
            ("apps", "Deployment"): cluster.deployments,
            ("apps", "ReplicaSet"): cluster.replica_sets,
            ("apps", "StatefulSet"): cluster.stateful_sets,
            ("apps.kruise.io", "CloneSet"): cluster.clone_sets,
            ("apps.kruise.io", "StatefulSet"): cluster.advanced_stateful_sets,
        }
        for informer in informers.values():
            informer.add_handlers(
                name="migration, workloads",
                on_add=lambda *_: self._known.cache_clear(),
                on_update=lambda *_: self._known.cache_clear(),
                on_delete=lambda *_: self._known.cache_clear(),
            )
        self._built_in = {kind: informer.get for kind, informer in informers.items()}

    def of(self, pod: Pod) -> Workload | None:
        """The workload that controls the pod; one of 0 replicas if it is gone, None if the pod has no controller.

        Raises WorkloadUnknownError for a kind that has to be read from the API and has not been lately."""
        controller = controller_of(pod.metadata)
        if controller is None:
            return None
        if self._is_read_from_the_api(controller):
            return self._remembered(controller, pod.metadata.namespace)
        return self._known(controller, pod.metadata.namespace)

    async def refresh(self, pods: Iterable[Pod], *, older_than: float = 0.0) -> None:
        """Read the scale of what controls these pods, as far as that is of a kind without an informer."""
        now = self._clock.monotonic()
        self._scales = {key: reading for key, reading in self._scales.items() if now - reading.at < _FORGET}
        wanted = {}
        for pod in pods:
            controller = controller_of(pod.metadata)
            if controller is not None and self._is_read_from_the_api(controller):
                wanted[controller.uid, pod.metadata.namespace] = controller
        due = iter([each for each in wanted.items() if self._is_due(*each[0], now, older_than)])
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(_AT_ONCE, len(wanted))):
                tasks.create_task(self._read_each(due))

    async def _read_each(self, due: Iterator[tuple[tuple[str, str], OwnerReference]]) -> None:
        for (uid, namespace), controller in due:
            self._changed.discard(uid)
            self._scales[uid, namespace] = await self._read(controller, namespace)

    def _is_due(self, uid: str, namespace: str, now: float, older_than: float) -> bool:
        reading = self._scales.get((uid, namespace))
        return reading is None or uid in self._changed or reading.is_due(now, older_than)

    def _is_read_from_the_api(self, controller: OwnerReference) -> bool:
        return (_group(controller), controller.kind) not in self._built_in

    def _note_change(self, pod: Pod) -> None:
        controller = controller_of(pod.metadata)
        if controller is not None and (controller.uid, pod.metadata.namespace) in self._scales:
            self._changed.add(controller.uid)

    def _find(self, controller: OwnerReference, namespace: str) -> Workload:
        found = self._built_in[_group(controller), controller.kind](f"{namespace}/{controller.name}")
        if found is None or found.metadata.uid != controller.uid:
            return _NONE
        owner = controller_of(found.metadata)
        if controller.kind == "ReplicaSet" and owner is not None and owner.kind == "Deployment":
            return self._of_deployment(found.metadata.namespace, owner)
        return _workload(found, (found.metadata.uid,))

    def _of_deployment(self, namespace: str, owner: OwnerReference) -> Workload:
        deployment = self._cluster.deployments.get(f"{namespace}/{owner.name}")
        if deployment is None or deployment.metadata.uid != owner.uid:
            return _NONE
        replica_sets = self._cluster.replica_sets_of(owner.uid)
        return _workload(deployment, tuple(each.metadata.uid for each in replica_sets))

    def _remembered(self, controller: OwnerReference, namespace: str) -> Workload:
        reading = self._scales.get((controller.uid, namespace))
        what = f"{controller.kind}.{controller.api_version} {namespace}/{controller.name}"
        if reading is None or self._clock.monotonic() - reading.at >= _FORGET:
            raise WorkloadUnknownError(f"the scale of {what} has not been read yet")
        if reading.workload is None:
            raise WorkloadUnknownError(f"the scale of {what} is not known: {reading.problem}")
        return reading.workload

    async def _read(self, controller: OwnerReference, namespace: str) -> _Reading:
        workload, problem = None, ""
        try:
            workload = await self._scale(controller, namespace)
        except ApiStatusError as error:
            workload, problem = (_NONE, "") if error.is_not_found else (None, str(error))
        except (KubeError, UnknownKindError, DecodeError) as error:
            problem = str(error)
        return _Reading(workload, problem, self._clock.monotonic())

    async def _scale(self, controller: OwnerReference, namespace: str) -> Workload:
        name = ObjectName(controller.api_version, controller.kind, controller.name)
        path = await self._paths.path(name, namespace, "scale")
        scale = decode(await self._client.raw("GET", path), _Scale)
        metadata = scale.metadata
        if metadata.uid != controller.uid:
            return _NONE
        return Workload(scale.spec.replicas, (controller.uid,), metadata.deletion_timestamp is not None)


def _workload(found: Any, uids: tuple[str, ...]) -> Workload:
    replicas = found.spec.replicas
    is_leaving = found.metadata.deletion_timestamp is not None
    return Workload(1 if replicas is None else replicas, uids, is_leaving)


def _group(controller: OwnerReference) -> str:
    group, slash, _ = controller.api_version.partition("/")
    return group if slash else ""
