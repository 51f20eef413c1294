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
from typing import Any, Final, Literal

from koordinator.api.kinds import PODS, Kind
from koordinator.api.meta import Object
from koordinator.api.modification import Modification
from koordinator.api.pod import Pod, PodCondition
from koordinator.api.timestamps import format_time
from koordinator.base.clock import Clock
from koordinator.base.loops import Heartbeat
from koordinator.kube.bounded_client import BoundedClient
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.event_series import reference_to
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.expectations import Expectations
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.lacks import Lack, lack_for_write
from koordinator.kube.request_slots import OverdueRequests, RequestSlots
from koordinator.scheduler.engine.handle import Events

logger = logging.getLogger(__name__)

FailureReason = Literal["Unschedulable", "SchedulerError"]
_CONDITION: Final = "PodScheduled"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed. ``Unschedulable``: no node fits; ``SchedulerError``: an error of the scheduler."""

    pod: Pod
    reason: FailureReason
    message: str
    nominated_node: str | None = None
    """The node that the pod is nominated to; empty clears a nomination, None leaves it as it is."""


@dataclass(slots=True)
class _Writes:
    """The writes to the status of one pod, kept until an event has shown them all."""

    following: Failure | None = None
    """What is to be written next."""
    writing: Failure | None = None
    """What is being written."""
    failed: Failure | None = None
    """The last write, if it failed: the API server may have carried it out, or not."""
    reported: tuple[str, str] | None = None
    """The reason and the message that the pod has once all is written; None if nothing is written about them."""
    nominated_node: str | None = None
    """The same of the nominated node."""
    is_over: bool = False
    """The pod needs no condition any more."""

    def expect(self, failure: Failure) -> None:
        """``failure`` is written after all that was written before."""
        if failure.message:
            self.reported = failure.reason, failure.message
        if failure.nominated_node is not None:
            self.nominated_node = failure.nominated_node

    def fail(self, failure: Failure) -> None:
        """``failure`` could not be written: what follows carries on its nomination."""
        self.failed, self.reported, self.nominated_node = failure, None, None
        if self.following is not None:
            self.following = _carried_on(self.following, failure)
            self.expect(self.following)


def _carried_on(failure: Failure, earlier: Failure) -> Failure:
    """``failure``, with the nomination that is not written yet unless it has its own: a member of a gang is nominated
    before its own attempt fails, whose report has no nomination."""
    return replace(failure, nominated_node=earlier.nominated_node) if failure.nominated_node is None else failure


class FailureReporter:
    """``run`` writes conditions with ``concurrency`` requests at a time until cancelled; those of one pod one after
    another, so that the last one stays.

    The pod that is reported may be older than what was written about it: what it has is what was written last, until an
    event shows that, and then what the event shows.
    """

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
        self._writes: dict[str, _Writes] = {}
        """By uid of the pod."""
        self._shown = Expectations(clock)
        """By uid, too."""
        self._nominated = Expectations(clock)
        """The same for the writes of nominations alone."""
        self._waiting: OrderedDict[str, _Writes] = OrderedDict()
        """Those of pods of which nothing is being written."""
        self._available = asyncio.Event()
        self._lack = Lack("conditions of pods")

    def report(self, failure: Failure) -> None:
        """Write the event now and the condition soon, if it differs from what the pod has."""
        self._events.pod_event(failure.pod, "Warning", "FailedScheduling", "Scheduling", failure.message)
        self.refresh(failure)

    def refresh(self, failure: Failure) -> None:
        """Write the condition soon, if it differs from what the pod has; there was no attempt, so there is no event."""
        if not self._is_said(failure):
            self._enqueue(failure)

    def _enqueue(self, failure: Failure) -> None:
        uid = failure.pod.metadata.uid
        writes = self._unseen(failure.pod)
        if writes is None:
            writes = self._writes[uid] = _Writes()
        earlier = writes.following or writes.failed
        if earlier is not None:
            failure = _carried_on(failure, earlier)
        writes.following, writes.is_over = failure, False
        writes.expect(failure)
        if writes.writing is None:
            self._waiting[uid] = writes
            self._available.set()

    @property
    def known(self) -> int:
        """The number of pods about whose writes something is known that no event has shown."""
        return len(self._writes)

    def _unseen(self, pod: Pod) -> _Writes | None:
        """The writes to the pod's status that this state of the pod may not show yet; None if it shows all."""
        uid = pod.metadata.uid
        writes = self._writes.get(uid)
        if writes is None or writes.following or writes.writing or writes.failed:
            return writes
        if not self._shown.are_satisfied(uid, pod):
            return writes
        self._forget(uid)
        return None

    def is_behind(self, pod: Pod) -> bool:
        """Whether this state of the pod is older than the last decision about its nomination, which counts until it
        could be written."""
        uid = pod.metadata.uid
        writes = self._writes.get(uid)
        if writes is not None:
            for failure in (writes.following, writes.writing, writes.failed):
                if failure is not None and failure.nominated_node is not None:
                    return True
        return not self._nominated.are_satisfied(uid, pod)

    def drop(self, uid: str) -> None:
        """The pod got a node or is gone: drop its unwritten condition, and what is known about those written."""
        writes = self._writes.get(uid)
        if writes is None:
            return
        self._waiting.pop(uid, None)
        writes.following, writes.is_over = None, True
        if writes.writing is None:
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        del self._writes[uid]
        self._shown.forget(uid)
        self._nominated.forget(uid)

    def nominate(self, pod: Pod, node_name: str) -> None:
        """Write the pod's nomination to another node, or with an empty name to none; its condition stays as it is."""
        writes = self._unseen(pod)
        known = writes and (writes.following or writes.failed)
        reason, message = (known.reason, known.message) if known else ("Unschedulable", "")
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
                    uid, writes = self._waiting.popitem(last=False)
                    writes.writing, writes.following = writes.following, None
                    tasks.create_task(self._write_all(uid, writes), name=f"report-{uid}")
                # They get in line in the next turn of the event loop.
                await asyncio.sleep(0)

    async def _write_all(self, uid: str, writes: _Writes) -> None:
        """Write the pod's condition, and those that are reported meanwhile."""
        while writes.writing is not None:
            with self._heartbeat.iteration():
                await self._write(uid, writes, writes.writing)
            writes.writing, writes.following = writes.following, None
        if writes.is_over:
            self._forget(uid)

    async def _write(self, uid: str, writes: _Writes, failure: Failure) -> None:
        metadata = failure.pod.metadata
        try:
            written = await self._client.patch(
                PODS,
                metadata.name,
                condition_patch(failure, format_time(self._clock.now())),
                PatchType.STRATEGIC,
                metadata.namespace,
                subresource="status",
            )
        except ApiStatusError as error:
            writes.fail(failure)
            lack = lack_for_write(error, "write the status of pods")
            if lack:
                self._lack.found(lack)
            else:
                logger.debug("condition of pod %s was not written: %s", metadata.key, error)
        except KubeError as error:
            writes.fail(failure)
            # The next attempt reports again; a pod that is gone needs no condition.
            logger.debug("condition of pod %s was not written: %s", metadata.key, error)
        except Exception:
            writes.fail(failure)
            logger.exception("condition of pod %s was not written", metadata.key)
        else:
            writes.failed = None
            self._shown.expect(uid, written)
            if failure.nominated_node is not None:
                self._nominated.expect(uid, written)
            self._lack.is_over()

    def _is_said(self, failure: Failure) -> bool:
        """Whether the pod has, or is about to have, all that ``failure`` is going to write."""
        condition = scheduled_condition(failure.pod)
        reported = None
        if condition is not None and condition.status == "False":
            reported = condition.reason, condition.message
        nominated = failure.pod.status.nominated_node_name
        writes = self._unseen(failure.pod)
        if writes is not None:
            if writes.failed is not None:
                return False
            reported = writes.reported or reported
            nominated = nominated if writes.nominated_node is None else writes.nominated_node
        return failure.nominated_node in (None, nominated) and reported == (failure.reason, failure.message)


def scheduled_condition(pod: Pod) -> PodCondition | None:
    """The pod's PodScheduled condition; None if it has none."""
    return next((condition for condition in pod.status.conditions if condition.type == _CONDITION), None)


def condition_patch(failure: Failure, now: str) -> dict[str, object]:
    """A strategic merge patch of the one condition; with the uid, so that it cannot apply to another pod of the same
    name. A nomination is written whatever the pod of ``failure`` has, which may be older than an earlier write."""
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
    if failure.nominated_node is not None:
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
        modification: Modification | None = None,
    ) -> None:
        """Record an event about the pod, under its own scheduler name or that of ``reporter``. Returns at once."""
        name = (reporter or pod).spec.scheduler_name
        about = reference_to(PODS, pod)
        self._recorders[name].event(about, event_type, reason, action, note, modification=modification)

    def object_event(
        self,
        scheduler_name: str,
        kind: Kind[Any],
        obj: Object,
        event_type: Literal["Normal", "Warning"],
        reason: str,
        action: str,
        note: str,
        *,
        modification: Modification | None = None,
    ) -> None:
        """Record an event about an object of another kind. Returns at once."""
        about = reference_to(kind, obj)
        self._recorders[scheduler_name].event(about, event_type, reason, action, note, modification=modification)
