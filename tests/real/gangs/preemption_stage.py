"""A stage for preemption: pods of several priorities, victims that leave only when they are told to, and what is seen
of all of them while some are leaving and at the end."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api.codec import encode
from koordinator.api.kinds import (
    ELASTIC_QUOTAS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    RESERVATIONS,
    Kind,
)
from koordinator.api.pod import Pod
from koordinator.kube.client import KubeClient
from koordinator.kube.event_series import EVENTS_V1
from koordinator.kube.interface import PatchType
from koordinator.scheduler.cycle.failure_report import scheduled_condition
from tests.real.gangs.stage import NAMESPACE, Stage
from tests.real.watched import watching

PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
JOB: Final = "scheduling.koordinator.sh/questioned-object-key"
_PRIORITIES: Final = (0, 5, 10, 20)
NEVER: Final = "never-10"
"""The class of pods of priority 10 that must not preempt."""
_GRACE_SECONDS: Final = 600
"""Longer than any scenario: without a kubelet, a pod on a node that is deleted stays until the stage lets it go."""
_ROUNDS: Final = 4
_UNTIL_BOUND: Final = 15.0
_UNTIL_COUNTED: Final = 6.0
_UID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAMED: Final = re.compile(rf"default/(?:[a-z]+-\d+|{_UID.pattern})")


@dataclass(frozen=True, slots=True)
class Moment:
    """What is seen while some pods are leaving. Pods of a gang are like each other: which of them is which, is not
    seen."""

    leaving: Mapping[str, str]
    """Pod that is being deleted -> its condition DisruptionTarget, empty if it has none."""
    nominated: Mapping[str, Mapping[str, int]]
    """Gang -> node -> how many pending pods are nominated to it."""


@dataclass(slots=True)
class Ended:
    """What is seen of a scenario."""

    moments: list[Moment] = field(default_factory=list)
    """Each time that all was quiet; then what was leaving was let go."""
    said: frozenset[str] = frozenset()
    """What conditions of pending pods said before any pod was let go, and in the end. What they say while one victim
    after the other goes is chance."""
    ever_said: frozenset[str] = frozenset()
    placed: dict[str, dict[str, int]] = field(default_factory=dict)
    """Gang -> node -> how many of its pods are there in the end."""
    victims: set[tuple[str, str, str, str]] = field(default_factory=set)
    """(pod, type, action, note) of the events of pods that were evicted."""
    reasons: dict[str, frozenset[str]] = field(default_factory=dict)
    """Gang -> the reasons of all other events of its pods."""
    phases: dict[str, str] = field(default_factory=dict)
    """PodGroup -> its phase, how many of its pods have a node, and those that run; of one without pods the phase
    alone."""

    @property
    def evicted(self) -> frozenset[str]:
        """Whoever a scheduler has made leave."""
        return frozenset(pod for each in self.moments for pod, condition in each.leaving.items() if condition)

    @property
    def first(self) -> Moment:
        return self.moments[0]


@dataclass(slots=True)
class PreemptionStage(Stage):
    moments: list[Moment] = field(default_factory=list)
    uids: dict[str, str] = field(default_factory=dict)
    """Uid -> pod, of all that have been seen."""
    said: set[str] = field(default_factory=set)
    ever_said: set[str] = field(default_factory=set)
    lets_go: bool = False
    """Whether a pod has been let go."""

    async def prepare(self) -> None:
        """Once for all scenarios."""
        for value in _PRIORITIES:
            await self._priority_class(f"p{value}", value)
        await self._priority_class(NEVER, 10, preemptionPolicy="Never")

    async def _priority_class(self, name: str, value: int, **others: str) -> None:
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value, **others}
        await self.client.raw("POST", PRIORITY_CLASSES, encode({**body, "metadata": {"name": name}}))

    async def important(self, gang: str, number: int, priority: int | str = 10, **changes: Any) -> None:
        """A pod that waits for a node, of a priority or a class; in a gang, unless ``by`` says otherwise."""
        class_name = f"p{priority}" if isinstance(priority, int) else priority
        await self.pod(gang, number, priorityClassName=class_name, **self._lasting(), **changes)

    async def gang(self, name: str, count: int, priority: int | str = 10, **changes: Any) -> None:
        """A PodGroup and as many pods as must be placed together."""
        await self.group(name, count)
        for number in range(count):
            await self.important(name, number, priority, **changes)

    async def running(
        self, name: str, count: int, node: int = 0, priority: int = 0, *, first: int = 0, job: str = "", **changes: Any
    ) -> None:
        """Pods that have been on a node for long; with the label of a job, if they belong to one."""
        labels = {**({JOB: job} if job else {}), **changes.pop("other_labels", {})}
        spec = {"by": "nothing", "nodeName": f"{self.prefix}-{node}", "other_labels": labels, **changes}
        for number in range(first, first + count):
            await self.important(name, number, priority, **spec)

    @staticmethod
    def _lasting() -> dict[str, Any]:
        return {"terminationGracePeriodSeconds": _GRACE_SECONDS}

    async def known(self) -> None:
        """Wait until the scheduler, too, has seen what is there."""
        await self.watched.quiet(1.0, 5.0)

    async def cordon(self, node: int) -> None:
        patch = {"spec": {"unschedulable": True}}
        await self.client.patch(NODES, f"{self.prefix}-{node}", patch, PatchType.MERGE)

    async def request_eviction(self, name: str) -> None:
        """Delete a pod as a user does."""
        await self.client.delete(PODS, name, NAMESPACE)

    def hear(self, pod: Pod) -> None:
        """A pod is new or has changed."""
        self.uids[pod.metadata.uid] = pod.metadata.name
        if pod.metadata.name in self.pods:
            self.ever_said |= _said(pod)
            self.said |= set() if self.lets_go else _said(pod)

    async def look(self) -> Moment:
        """See what is there as soon as it is quiet."""
        await self.quiet()
        pods = self.watched.list(PODS)
        nominated = dict[str, Counter[str]]()
        for pod in pods:
            if (node := pod.status.nominated_node_name) and not pod.spec.node_name:
                nominated.setdefault(self.pods[pod.metadata.name], Counter())[node] += 1
        moment = Moment(
            {pod.metadata.name: _disruption(pod) for pod in pods if pod.metadata.deletion_timestamp is not None},
            {gang: dict(found) for gang, found in nominated.items()},
        )
        self.moments.append(moment)
        return moment

    async def let_go(self, names: Sequence[str]) -> None:
        """As a kubelet does when the containers have ended."""
        self.lets_go = True
        for name in names:
            await self._delete(PODS, name, NAMESPACE)

    async def end(self) -> Ended:
        """Let whoever leaves go, until nobody leaves any more."""
        for _ in range(_ROUNDS):
            moment = await self.look()
            if not moment.leaving:
                break
            await self.let_go(list(moment.leaving))
            await self.watched.until(self._all_placed, _UNTIL_BOUND)
        return await self._ended()

    def _all_placed(self) -> bool:
        pods = self.watched.list(PODS)
        return all(pod.spec.node_name and pod.metadata.deletion_timestamp is None for pod in pods)

    async def _ended(self) -> Ended:
        await self.watched.until(self._are_counted, _UNTIL_COUNTED)
        pods = self.watched.list(PODS)
        self.said.update(*map(_said, pods))
        found = Ended(self.moments, frozenset(self.said), frozenset(self.ever_said))
        for pod in pods:
            if pod.spec.node_name:
                on_nodes = found.placed.setdefault(self.pods[pod.metadata.name], {})
                on_nodes[pod.spec.node_name] = on_nodes.get(pod.spec.node_name, 0) + 1
        for group in self.watched.list(POD_GROUPS):
            status = group.status
            counted = f" {status.scheduled}/{status.running}" if status.phase != "Pending" else ""
            found.phases[group.metadata.name] = f"{status.phase}{counted}"
        reasons = dict[str, set[str]]()
        for event in json.loads(await self.client.raw("GET", EVENTS_V1.path(NAMESPACE)))["items"]:
            name = self.uids.get(event["regarding"].get("uid", ""))
            if name is None:
                continue
            if event["reason"] == "Preempted":
                found.victims.add(
                    (name, event["type"], event["action"], _without_uid(event["note"], event["regarding"]["uid"]))
                )
            else:
                reasons.setdefault(self.pods[name], set()).add(event["reason"])
        found.reasons = {gang: frozenset(each) for gang, each in reasons.items()}
        return found

    async def clear(self) -> None:
        await Stage.clear(self)
        others: tuple[tuple[Kind[Any], str], ...] = (
            (POD_DISRUPTION_BUDGETS, NAMESPACE),
            (ELASTIC_QUOTAS, NAMESPACE),
            (RESERVATIONS, ""),
        )
        for kind, namespace in others:
            for each in (await self.client.list(kind, namespace)).items:
                await self._delete(kind, each.metadata.name, namespace)
        self.moments, self.uids, self.said, self.ever_said, self.lets_go = [], {}, set(), set(), False
        await self.watched.until(lambda: not self.watched.list(PODS), _UNTIL_BOUND)

    async def create(self, kind: Kind[Any], document: Mapping[str, Any], namespace: str = NAMESPACE) -> None:
        await self.client.create(kind, dict(document), namespace)


@asynccontextmanager
async def preemption_stage(client: KubeClient) -> AsyncIterator[PreemptionStage]:
    """A stage, with its CRDs in the cluster already."""
    async with watching(client, (PODS, NAMESPACE), (POD_GROUPS, NAMESPACE)) as watched:
        stage = PreemptionStage(watched)
        watched.hear(PODS, stage.hear)
        yield stage


def _disruption(pod: Pod) -> str:
    for each in pod.status.conditions:
        if each.type == "DisruptionTarget":
            return _without_names(f"{each.status} {each.reason}: {each.message}")
    return ""


def _said(pod: Pod) -> set[str]:
    condition = scheduled_condition(pod)
    return {_without_names(condition.message)} if condition is not None and not pod.spec.node_name else set()


def _without_names(text: str) -> str:
    """Which member of a gang is tried first is chance."""
    return _NAMED.sub("default/*", text)


def _without_uid(note: str, of_victim: str) -> str:
    """The preemptor is another pod, or stands for a Reservation."""
    return _UID.sub("of another one", note.replace(of_victim, "of its own"))
