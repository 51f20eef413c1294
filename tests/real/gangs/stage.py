"""A small cluster for one scenario: nodes with slots, gangs of pods of one slot each, and what became of the pods."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from koordinator.api.kinds import NODES, POD_GROUPS, PODS, Kind
from koordinator.api.pod import Pod
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import EVENTS_V1
from koordinator.kube.interface import PatchType
from koordinator.scheduler.cycle.failure_report import scheduled_condition
from tests.real.watched import Watched, watching

NAMESPACE: Final = "default"
GANG: Final = "gang.scheduling.koordinator.sh"
POD_GROUP: Final = "pod-group.scheduling.sigs.k8s.io"
_QUIET_SECONDS: Final = 2.5
"""No pod has changed for so long: everybody has said what he has to say. Longer than the first back-off."""
_QUIET_DECISIONS: Final = 10
"""Nor for as long as so many decisions take."""
_STARTED: Final = 120.0
_LONGEST: Final = 10.0
"""The original tries a gang that does not fit over and over: it is never quiet."""
_LONGEST_BACK_OFF: Final = 40.0
"""The queue's longest is ten seconds, and a gang may need several attempts."""
_LONGEST_COUNT: Final = 6.0
"""Seconds for a PodGroup's status after its last pod was bound."""
_MEMBER: Final = re.compile(r'(member Pod ")[^"]+(")|(due to Pod ")[^"]+(")')
_COUNT: Final = re.compile(r"alreadyWaitForBound: \d+")
_PARTNER: Final = re.compile(r"^0/\d+ nodes are available: (?:\d+ )?(GangGroup .*alreadyWaitForBound: N)\..*")
"""Of a member that another one has failed. Whether it had a node, or was not tried, changes with each attempt of the
original, which never stops."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What can be seen of a scenario once it is quiet."""

    bound: Mapping[str, int]
    """Gang -> how many of its pods have a node."""
    messages: Mapping[str, frozenset[str]]
    """Gang -> what the conditions of its pending pods say, without what chance decides."""
    annotations: Mapping[str, frozenset[tuple[tuple[str, str], ...]]]
    """Gang -> what its bound pods were annotated with."""
    phases: Mapping[str, str]
    """PodGroup -> its phase and counters."""
    event_reasons: frozenset[str]

    @property
    def reported(self) -> frozenset[str]:
        """What pending pods are told, whichever of them: of a gang that does not fit only why its members were turned
        away. Which member has failed, and which one is about to try, changes with each attempt of the original."""
        found = frozenset().union(*self.messages.values())
        return frozenset(each for each in found if each.startswith("GangGroup")) or found


@dataclass(slots=True)
class Stage:
    """Pods and PodGroups are ``watched``. Names of pods are ``gang-number``."""

    watched: Watched
    pods: dict[str, str] = field(default_factory=dict)
    """Pod -> gang."""
    prefix: str = "node"
    """Of the names of nodes."""
    decision_seconds: float = 0.0
    """From the creation of a pod until it has a node: a machine that other programs need, too, is slower."""

    @property
    def client(self) -> KubeClient:
        return self.watched.client

    async def nodes(self, *slots: int) -> None:
        for number, count in enumerate(slots):
            await self.add_node(f"{self.prefix}-{number}", count)

    async def add_node(self, name: str, slots: int, **spec: Any) -> None:
        resources = {"cpu": f"{slots}", "memory": "64Gi", "pods": "110"}
        status = {"capacity": resources, "allocatable": resources}
        await self.client.create(NODES, {"metadata": {"name": name}, "spec": spec, "status": status})

    async def group(self, name: str, minimum: int, *, timeout: int | None = None, **annotations: str) -> None:
        """A PodGroup; keys of annotations without their prefix, with underscores."""
        spec: dict[str, Any] = {"minMember": minimum}
        if timeout is not None:
            spec["scheduleTimeoutSeconds"] = timeout
        metadata = {"name": name, "annotations": _annotations(annotations)}
        await self.client.create(POD_GROUPS, {"metadata": metadata, "spec": spec}, NAMESPACE)

    async def change_minimum(self, name: str, minimum: int) -> None:
        patch = {"spec": {"minMember": minimum}}
        await self.client.patch(POD_GROUPS, name, patch, PatchType.MERGE, NAMESPACE)

    async def delete_group(self, name: str) -> None:
        await self.client.delete(POD_GROUPS, name, NAMESPACE)

    async def delete_pod(self, name: str) -> None:
        await self.client.delete(PODS, name, NAMESPACE, grace_period_seconds=0)

    async def pod(self, gang: str, number: int, *, by: str = "label", cpu: str = "1", **changes: Any) -> None:
        """One pod of a gang, ``by`` a label for a PodGroup's or by ``annotation``, which ``annotations`` add to. The
        names of ``labels`` lack the prefix of PodGroups', those of ``other_labels`` lack nothing."""
        name = f"{gang}-{number}"
        labels = {f"{POD_GROUP}/{key}": value for key, value in changes.pop("labels", {}).items()}
        labels |= changes.pop("other_labels", {})
        annotations = _annotations(changes.pop("annotations", {}))
        metadata: dict[str, Any] = {"name": name, "labels": labels, "annotations": annotations}
        if by == "label":
            labels[POD_GROUP] = gang
        elif by == "annotation":
            metadata["annotations"][f"{GANG}/name"] = gang
        requests = {"cpu": cpu, "memory": "64Mi"}
        container = {"name": "main", "image": "pause", "resources": {"requests": requests}}
        spec = {"schedulerName": "koord-scheduler", "containers": [container], **changes}
        await self.client.create(PODS, {"metadata": metadata, "spec": spec}, NAMESPACE)
        self.pods[name] = gang

    async def pods_of(self, gang: str, count: int, **changes: Any) -> None:
        for number in range(count):
            await self.pod(gang, number, **{key: _copied(value) for key, value in changes.items()})

    async def until_scheduling(self) -> None:
        """Wait until the scheduler places a pod that is in no gang."""
        clock, count = asyncio.get_running_loop().time, 2
        await self.nodes(count)
        for number in range(count):
            began = clock()
            await self.pod("canary", number, by="nothing")
            is_bound = partial(self._is_bound, "canary", number + 1)
            assert await self.watched.until(is_bound, _STARTED), "no pod is placed"
            # The first one has waited for the scheduler to start.
            self.decision_seconds = clock() - began
        await self.clear()

    async def quiet(self) -> None:
        """Wait until no pod has changed for a while."""
        seconds = max(_QUIET_SECONDS, _QUIET_DECISIONS * self.decision_seconds)
        await self.watched.quiet(seconds, max(_LONGEST, 4 * seconds))

    async def bound(self, gang: str, count: int) -> None:
        """Wait until so many pods of the gang have a node. The outcome shows whether they got one.

        Back-off may be longer than what ``quiet`` waits for.
        """
        await self.watched.until(partial(self._is_bound, gang, count), _LONGEST_BACK_OFF)

    def _is_bound(self, gang: str, count: int) -> bool:
        return self._bound_of(gang) >= count

    def _bound_of(self, gang: str) -> int:
        pods = self.watched.list(PODS)
        return sum(bool(pod.spec.node_name) for pod in pods if self.pods.get(pod.metadata.name) == gang)

    def _are_counted(self) -> bool:
        """Whether no PodGroup's status counts fewer pods than have a node; on a busy machine it is written late."""
        groups = self.watched.list(POD_GROUPS)
        return all(group.status.scheduled >= self._bound_of(group.metadata.name) for group in groups)

    async def outcome(self) -> Outcome:
        await self.quiet()
        await self.watched.until(self._are_counted, _LONGEST_COUNT)
        pods = {pod.metadata.name: pod for pod in self.watched.list(PODS)}
        bound: dict[str, int] = {}
        messages: dict[str, set[str]] = {}
        annotations: dict[str, set[tuple[tuple[str, str], ...]]] = {}
        for name, gang in self.pods.items():
            pod = pods.get(name)
            if pod is None:
                continue
            bound[gang] = bound.get(gang, 0) + bool(pod.spec.node_name)
            if pod.spec.node_name:
                annotations.setdefault(gang, set()).add(_binding_annotations(pod))
            else:
                condition = scheduled_condition(pod)
                messages.setdefault(gang, set()).add(_without_names(condition.message) if condition else "")
        uids = {pod.metadata.uid for pod in pods.values()}
        groups = self.watched.list(POD_GROUPS)
        events = json.loads(await self.client.raw("GET", EVENTS_V1.path(NAMESPACE)))["items"]
        return Outcome(
            bound,
            {gang: frozenset(found) for gang, found in messages.items()},
            {gang: frozenset(found) for gang, found in annotations.items()},
            {group.metadata.name: _status(group) for group in groups},
            frozenset(event["reason"] for event in events if event["regarding"].get("uid") in uids),
        )

    async def clear(self) -> None:
        """Nothing is left for the next scenario."""
        kinds: tuple[Kind[Any], ...] = (PODS, POD_GROUPS, EVENTS_V1)
        for kind in kinds:
            for each in (await self.client.list(kind, NAMESPACE)).items:
                await self._delete(kind, each.metadata.name, NAMESPACE)
        for node in (await self.client.list(NODES)).items:
            await self._delete(NODES, node.metadata.name, "")
        self.pods.clear()

    async def _delete(self, kind: Any, name: str, namespace: str) -> None:
        try:
            await self.client.delete(kind, name, namespace, grace_period_seconds=0)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise


@asynccontextmanager
async def watched_stage(client: KubeClient) -> AsyncIterator[Stage]:
    """A stage, with its CRDs in the cluster already."""
    async with watching(client, (PODS, NAMESPACE), (POD_GROUPS, NAMESPACE)) as watched:
        yield Stage(watched)


def _annotations(named: Mapping[str, str]) -> dict[str, str]:
    return {f"{GANG}/{key.replace('_', '-')}": value for key, value in named.items()}


def _copied(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


def _binding_annotations(pod: Pod) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in pod.metadata.annotations.items() if "bind-gang" in key))


def _without_names(message: str) -> str:
    return _PARTNER.sub(r"\1", _COUNT.sub("alreadyWaitForBound: N", _MEMBER.sub(r"\1\3*\2\4", message)))


def _status(group: Any) -> str:
    status = group.status
    return f"{status.phase} {status.scheduled}/{status.running}/{status.succeeded}/{status.failed}"


def names(gangs: Sequence[str]) -> str:
    """The annotation that puts gangs into one group."""
    return json.dumps([f"{NAMESPACE}/{gang}" for gang in gangs])
