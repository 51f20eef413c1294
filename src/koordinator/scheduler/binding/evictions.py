"""Preempts victims so that a pod of higher priority fits: sets the condition of each, deletes it, and records an
event.

Before, the API server is asked whether it would admit the Binding, in a dry run: nobody leaves for a pod that an
admission webhook keeps from its node. Upstream evicts others for such a pod again and again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from koordinator.api.modification import PREEMPTED, Cause, Modification
from koordinator.base.clock import Clock
from koordinator.base.logs import verbosity
from koordinator.base.loops import Heartbeat
from koordinator.kube.bounded_client import BoundedClient
from koordinator.kube.errors import KubeError, MalformedObjectError
from koordinator.kube.interface import Client
from koordinator.kube.pod_eviction import PodDeleter
from koordinator.kube.request_slots import OverdueRequests, RequestSlots
from koordinator.scheduler.binding.binding_cycle import pod_binding
from koordinator.scheduler.engine.handle import Events
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import BY_SCHEDULER
from koordinator.scheduler.engine.view import ClusterView

logger = logging.getLogger(__name__)

_PATIENCE: Final = 10.0
"""Seconds to wait until the view shows a deletion that the API has confirmed. This is the longest back-off, so that
waiting costs the pod no more than failing again."""
_EACH_EVICTION: Final = verbosity(2)


@dataclass(frozen=True, slots=True)
class Eviction:
    """``victims`` leave for ``preemptor``, which is to be bound to ``nominated_node``."""

    preemptor: PodInfo
    nominated_node: str
    victims: Sequence[tuple[PodInfo, str]]
    """Each with the name of the node that it leaves."""
    plugin: str
    cause: str
    """The text of the victims' condition after the scheduler's name."""
    with_gangs: Mapping[str, str]
    """Uid of a victim -> the id of its gang, which leaves whole."""
    on_notified: Callable[[bool], None]
    """Called once, when the view shows every victim as terminating or gone, or when some could not be evicted or do not
    terminate: with whether all of them have left their nodes."""
    on_refused: Callable[[str], None]
    """Called before that, with a sentence that says why the preemptor will not get its node: it would not be bound, so
    that nobody is evicted, or a victim cannot be evicted."""


class Evictions:
    """``run`` carries out submitted evictions, with several requests at a time, until cancelled."""

    def __init__(
        self,
        client: Client,
        events: Events,
        view: ClusterView,
        heartbeat: Heartbeat,
        clock: Clock,
        random: Random,
        *,
        overdue: OverdueRequests | None = None,
        concurrency: int = 16,
    ) -> None:
        self._slots = RequestSlots(concurrency, clock, overdue=overdue, backlog=client.backlog)
        self._client = BoundedClient(client, self._slots, clock, random)
        self._deleter = PodDeleter(self._client, clock=clock)
        self._heartbeat = heartbeat
        self._events = events
        self._view = view
        self._clock = clock
        self._arrived: asyncio.Queue[Eviction] = asyncio.Queue()
        self._notified: asyncio.Queue[tuple[float, str]] = asyncio.Queue()
        """The deadlines of waiting for victims, by uid; the next one first."""

    def submit(self, eviction: Eviction) -> None:
        """Evict soon."""
        staying = {victim.uid for victim, _ in eviction.victims}

        def on_seen(uid: str) -> None:
            staying.discard(uid)
            if not staying:
                eviction.on_notified(self._is_free(eviction))

        for victim, _ in eviction.victims:
            self._view.pending_evictions.expect(victim.uid, partial(on_seen, victim.uid))
        self._arrived.put_nowait(eviction)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._slots.run(), name="evict-slots")
            tasks.create_task(self._give_up(), name="evict-too-late")
            while True:
                eviction = await self._arrived.get()
                tasks.create_task(self._carry_out(eviction), name=f"evict-for-{eviction.preemptor.key}")

    async def _carry_out(self, eviction: Eviction) -> None:
        try:
            refusal = await self._refusal(eviction)
        except Exception as error:
            logger.exception("it could not be found out whether pod %s may be bound", eviction.preemptor.key)
            refusal = f"{type(error).__name__}: {error}"
        if refusal:
            binding = f"its Binding to {eviction.nominated_node}"
            self._tell(eviction, f"nobody is evicted for it: {binding} would fail: {refusal}")
            eviction.on_refused(f"It would not be bound: {refusal}")
            for victim, _ in eviction.victims:
                self._view.pending_evictions.seen(victim.uid)
            return
        async with asyncio.TaskGroup() as tasks:
            for victim, node_name in eviction.victims:
                tasks.create_task(self._evict_one(eviction, victim, node_name), name=f"evict-{victim.key}")

    def _tell(self, eviction: Eviction, note: str) -> None:
        """Record an event about the preemptor, unless no API has it."""
        if eviction.preemptor.uid in self._view.pseudo_pods:
            return
        self._events.pod_event(eviction.preemptor.pod, "Warning", "FailedScheduling", "Preempting", note)

    async def _refusal(self, eviction: Eviction) -> str:
        """Why the preemptor would not be bound to the node; empty if it would."""
        preemptor = eviction.preemptor
        if preemptor.uid in self._view.pseudo_pods:
            return ""
        try:
            await pod_binding(preemptor.pod, eviction.nominated_node).send(self._client, dry_run=True)
        except MalformedObjectError:
            return ""
        except KubeError as error:
            return str(error)
        return ""

    async def _evict_one(self, eviction: Eviction, victim: PodInfo, node_name: str) -> None:
        try:
            with self._heartbeat.iteration():
                is_leaving = await self._evict(eviction, victim, node_name)
        except KubeError as error:
            why = f"pod {victim.key} cannot be evicted from {node_name}: {error}"
            logger.warning("%s", why)
            self._tell(eviction, why)
            eviction.on_refused(f"{why[0].upper()}{why[1:]}")
            is_leaving = False
        except Exception:
            # The preemptor must not wait for ever for a victim that is not evicted.
            logger.exception("pod %s could not be evicted from %s", victim.key, node_name)
            is_leaving = False
        if is_leaving:
            self._notified.put_nowait((self._clock.monotonic() + _PATIENCE, victim.uid))
        else:
            self._view.pending_evictions.seen(victim.uid)

    async def _give_up(self) -> None:
        """A victim that should have been gone at once, but is only marked for deletion, may stay: its node may be dead.
        The pods that wait for it may find another node."""
        while True:
            until, uid = await self._notified.get()
            seconds = until - self._clock.monotonic()
            if seconds > 0:
                await self._clock.sleep(seconds)
            self._view.pending_evictions.seen(uid)

    def _is_free(self, eviction: Eviction) -> bool:
        rows, pods_on = self._view.columns.row_of, self._view.pods_on
        left = ((victim.uid, rows.get(node_name)) for victim, node_name in eviction.victims)
        return all(row is None or uid not in pods_on[row] for uid, row in left)

    async def _evict(self, eviction: Eviction, victim: PodInfo, node_name: str) -> bool:
        """Whether the view will show that the victim leaves because of this eviction."""
        waiting = self._view.waiting.get(victim.uid)
        if waiting is not None:
            # It leaves soon: the scheduling loop reports when it has been removed from its node.
            waiting.reject(eviction.plugin, "preempted")
        elif victim.pod.metadata.deletion_timestamp is not None or not await self._delete(eviction, victim):
            return False
        preemptor = eviction.preemptor
        logger.log(_EACH_EVICTION, "pod %s is evicted from %s for pod %s", victim.key, node_name, preemptor.key)
        whole = _whole(eviction, victim)
        note = f"Preempted by pod {preemptor.uid} on node {node_name}{whole}"
        record = Modification(
            action=PREEMPTED,
            actor=f"Pod/{preemptor.key}",
            node=node_name,
            cause=Cause(code=eviction.plugin, text=f"{eviction.cause}, for pod {preemptor.key}{whole}"),
        )
        self._events.pod_event(
            victim.pod, "Normal", "Preempted", "Preempting", note, reporter=preemptor.pod, modification=record
        )
        return True

    async def _delete(self, eviction: Eviction, victim: PodInfo) -> bool:
        """Whether the victim is terminating now because of this eviction, and not gone. Raises KubeError."""
        message = f"{eviction.preemptor.pod.spec.scheduler_name}: {eviction.cause}{_whole(eviction, victim)}"
        return await self._deleter.delete(victim.pod.metadata, BY_SCHEDULER, message)


def _whole(eviction: Eviction, victim: PodInfo) -> str:
    """What is said of a victim whose gang leaves with it."""
    gang = eviction.with_gangs.get(victim.uid)
    return f", together with all of its gang {gang}" if gang else ""
