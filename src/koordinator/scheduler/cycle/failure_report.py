"""Reports on a pod why it is pending: the PodScheduled condition and a FailedScheduling event.

Only the latest failure of a pod is written, and only if it differs from what the pod has; reports are queued, and never
delay a binding.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, Literal, Protocol

from koordinator.api.kinds import PODS, Kind
from koordinator.api.meta import Object
from koordinator.api.pod import Pod, PodCondition
from koordinator.api.timestamps import format_time
from koordinator.base.clock import Clock
from koordinator.base.loops import Heartbeat
from koordinator.kube.bounded_client import BoundedClient
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.event_series import reference_to
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.lacks import Lack, lack_for_write
from koordinator.kube.request_slots import OverdueRequests, RequestSlots

logger = logging.getLogger(__name__)

FailureReason = Literal["Unschedulable", "SchedulerError"]
_CONDITION: Final = "PodScheduled"


class Events(Protocol):
    """Records events; must not block."""

    def pod_event(
        self,
        pod: Pod,
        event_type: Literal["Normal", "Warning"],
        reason: str,
        action: str,
        note: str,
        *,
        reporter: Pod | None = None,
    ) -> None:
        """Record an event of events.k8s.io about the pod, under the scheduler name of the pod, or of ``reporter``."""

    def object_event(
        self,
        scheduler_name: str,
        kind: Kind[Any],
        obj: Object,
        event_type: Literal["Normal", "Warning"],
        reason: str,
        action: str,
        note: str,
    ) -> None:
        """Record an event about an object of another kind, under a scheduler name."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed. ``Unschedulable``: no node fits; ``SchedulerError``: an error of the scheduler."""

    pod: Pod
    reason: FailureReason
    message: str
    nominated_node: str | None = None
    """The node that the pod is nominated to; empty clears a nomination, None leaves it as it is."""


class FailureReporter:
    """``run`` writes conditions with ``concurrency`` requests at a time until cancelled; those of one pod one after
    another, so that the last one stays."""

    def __init__(
        self,
        client: Client,
        events: Events,
        heartbeat: Heartbeat,
        clock: Clock,
        random: Random,
        *,
        overdue: OverdueRequests | None = None,
        concurrency: int = 8,
    ) -> None:
        self._concurrency = concurrency
        self._slots = RequestSlots(concurrency, clock, overdue=overdue, backlog=client.backlog)
        self._client = BoundedClient(client, self._slots, clock, random)
        self._heartbeat = heartbeat
        self._events = events
        self._clock = clock
        self._waiting: OrderedDict[str, Failure] = OrderedDict()
        self._writing: dict[str, Failure | None] = {}
        """By uid of a pod whose condition is being written: what is to be written next."""
        self._available = asyncio.Event()
        self._lack = Lack("conditions of pods")

    def report(self, failure: Failure) -> None:
        """Write the event now and the condition soon, if it differs from what the pod has."""
        self._events.pod_event(failure.pod, "Warning", "FailedScheduling", "Scheduling", failure.message)
        if self._is_said(failure):
            return
        self._enqueue(failure)

    def _enqueue(self, failure: Failure) -> None:
        uid = failure.pod.metadata.uid
        known = self._unwritten(uid)
        if known is not None and failure.nominated_node is None:
            # A member of a gang is nominated before its own attempt fails, whose report has no nomination.
            failure = replace(failure, nominated_node=known.nominated_node)
        if uid in self._writing:
            self._writing[uid] = failure
        else:
            self._waiting[uid] = failure
            self._available.set()

    def _unwritten(self, uid: str) -> Failure | None:
        return self._writing[uid] if uid in self._writing else self._waiting.get(uid)

    def drop(self, uid: str) -> None:
        """The pod got a node or is gone: drop its unwritten condition."""
        self._waiting.pop(uid, None)
        if uid in self._writing:
            self._writing[uid] = None

    def nominate(self, pod: Pod, node_name: str) -> None:
        """Write the pod's nomination to another node, or with an empty name to none; its condition stays as it is."""
        known = self._unwritten(pod.metadata.uid)
        reason, message = (known.reason, known.message) if known is not None else ("Unschedulable", "")
        self._enqueue(Failure(pod, reason, message, nominated_node=node_name))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._slots.run(), name="report-slots")
            while True:
                await self._available.wait()
                # What waits here is replaced by later news; what waits for a slot is not.
                await self._slots.room()
                if not self._waiting:
                    self._available.clear()
                    continue
                for _ in range(min(len(self._waiting), self._concurrency)):
                    uid, failure = self._waiting.popitem(last=False)
                    self._writing[uid] = None
                    tasks.create_task(self._write_all(uid, failure), name=f"report-{failure.pod.metadata.key}")
                # They get in line in the next turn of the event loop.
                await asyncio.sleep(0)

    async def _write_all(self, uid: str, failure: Failure) -> None:
        """Write the pod's condition, and those that are reported meanwhile."""
        following: Failure | None = failure
        while following is not None:
            self._writing[uid] = None
            with self._heartbeat.iteration():
                await self._write(following)
            following = self._writing[uid]
        del self._writing[uid]

    async def _write(self, failure: Failure) -> None:
        metadata = failure.pod.metadata
        try:
            await self._client.patch(
                PODS,
                metadata.name,
                condition_patch(failure, format_time(self._clock.now())),
                PatchType.STRATEGIC,
                metadata.namespace,
                subresource="status",
            )
        except ApiStatusError as error:
            lack = lack_for_write(error, "write the status of pods")
            if lack:
                self._lack.found(lack)
            else:
                logger.debug("condition of pod %s was not written: %s", metadata.key, error)
        except KubeError as error:
            # The next attempt reports again; a pod that is gone needs no condition.
            logger.debug("condition of pod %s was not written: %s", metadata.key, error)
        except Exception:
            logger.exception("condition of pod %s was not written", metadata.key)
        else:
            self._lack.is_over()

    def _is_said(self, failure: Failure) -> bool:
        condition = scheduled_condition(failure.pod)
        return (
            failure.nominated_node in (None, failure.pod.status.nominated_node_name)
            and condition is not None
            and condition.status == "False"
            and condition.reason == failure.reason
            and condition.message == failure.message
        )


def scheduled_condition(pod: Pod) -> PodCondition | None:
    """The pod's PodScheduled condition; None if it has none."""
    return next((condition for condition in pod.status.conditions if condition.type == _CONDITION), None)


def condition_patch(failure: Failure, now: str) -> dict[str, object]:
    """A strategic merge patch of the one condition; with the uid, so that it cannot apply to another pod of the same
    name."""
    metadata = failure.pod.metadata
    before = scheduled_condition(failure.pod)
    condition: dict[str, object] = {
        "type": _CONDITION,
        "status": "False",
        "reason": failure.reason,
        "message": failure.message,
        "lastProbeTime": None,
    }
    if metadata.generation:
        condition["observedGeneration"] = metadata.generation
    if before is None or before.status != "False":
        condition["lastTransitionTime"] = now
    status: dict[str, object] = {"conditions": [condition]} if failure.message else {}
    if failure.nominated_node not in (None, failure.pod.status.nominated_node_name):
        status["nominatedNodeName"] = failure.nominated_node or None
    return {"metadata": {"uid": metadata.uid}, "status": status}


class PodEvents:
    """One event recorder for each scheduler name."""

    def __init__(self, broadcaster: EventBroadcaster, scheduler_names: Iterable[str]) -> None:
        self._recorders = {name: broadcaster.recorder(name) for name in scheduler_names}

    def pod_event(
        self,
        pod: Pod,
        event_type: Literal["Normal", "Warning"],
        reason: str,
        action: str,
        note: str,
        *,
        reporter: Pod | None = None,
    ) -> None:
        """Record an event about the pod, under its own scheduler name or that of ``reporter``. Returns at once."""
        name = (reporter or pod).spec.scheduler_name
        self._recorders[name].event(reference_to(PODS, pod), event_type, reason, action, note)

    def object_event(
        self,
        scheduler_name: str,
        kind: Kind[Any],
        obj: Object,
        event_type: Literal["Normal", "Warning"],
        reason: str,
        action: str,
        note: str,
    ) -> None:
        """Record an event about an object of another kind. Returns at once."""
        self._recorders[scheduler_name].event(reference_to(kind, obj), event_type, reason, action, note)
