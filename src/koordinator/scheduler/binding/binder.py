"""Binds pods to the nodes that were chosen for them, many at a time, and finds out the outcome of each binding.

The life of a binding: it is *sent* when it gets a slot, and nearly always bound by that. When the API server fails, it
gives its slot back and is *in trouble*: it waits, and is sent again to the same node, a few times. After an answer that
leaves open what was done, or a lost one, the pod is read before anything else. In the end the pod is bound, or it is
refused with the reason of the server, which frees its room on the node and puts it back into the queue.

The room is never freed while a request may still be carried out, because that would overcommit the node: after a lost
answer not before the API server itself must have given up the request, and the pod was read since.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from math import inf
from random import Random
from typing import Final, Protocol

import msgspec

from koordinator.api.kinds import PODS
from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.kube.attempts import PATIENCE, Attempts
from koordinator.kube.errors import (
    ApiStatusError,
    KubeError,
    MalformedObjectError,
    TransportError,
    UnsentError,
)
from koordinator.kube.interface import Client
from koordinator.kube.lacks import Lack, lack_for_write
from koordinator.kube.request_slots import OverdueRequests, RequestSlots, Ticket, is_of_the_request
from koordinator.kube.slot_workers import SlotWorkers
from koordinator.scheduler.binding.requests import BOUND, BindingRequest, Outcome, Result, outcome
from koordinator.scheduler.engine.binding_points import ClusterWriter
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.handle import Events
from koordinator.scheduler.queue.queued_pod import QueuedPod

logger = logging.getLogger(__name__)

_READ: Final = "(reads)"
"""The group of reads, which no namespace has as its name: no webhook delays those."""
_READS: Final = BackoffPolicy(initial=0.2, maximum=30.0)
"""As events show most outcomes, a server that does not let them be read is not asked often."""
_CARRIED_OUT: Final = 60.0
"""Seconds within which an API server carries out a request or gives it up (``--request-timeout``)."""
DEADLINE: Final = PATIENCE.seconds + 2 * _CARRIED_OUT
"""The deadline of a binding in seconds: it has ended by then, unless the API server cannot be read. A later binding is
not cancelled: its pod stays assumed until the outcome is known."""


class Stage(Enum):
    """What is being done about a binding, see ``BindingCycle``."""

    RESERVED = "reserved"
    WAITING = "waiting"
    PRE_BIND = "in PreBind"
    BINDING = "being bound"
    ENDED = "ended"


class Binding(msgspec.Struct, eq=False):
    """A binding in progress: of a pod, or of the object that a reserve pod stands for."""

    entry: QueuedPod
    placement: Placement
    engine: Engine
    started: float
    """When the attempt began, in monotonic seconds."""
    request: BindingRequest
    on_bound: Callable[[], None] | None = None
    """Called once it is bound."""
    stage: Stage = Stage.RESERVED


class Cluster(Protocol):
    """The part of the cluster state that the binder uses."""

    def has_node(self, name: str) -> bool: ...

    def confirmed_node(self, uid: str) -> str | None:
        """The node that the API has an assumed pod on; empty while it is only assumed, None if the pod is gone."""


Finished = Callable[[Binding, Outcome], None]


class Binder:
    """``run`` carries out what was submitted until cancelled; ``finished`` is called for every binding, and ``freed``
    when there is capacity again."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        writer: ClusterWriter,
        events: Events,
        finished: Finished,
        freed: Callable[[], None],
        timed: Callable[[float], None],
        *,
        clock: Clock,
        random: Random,
        overdue: OverdueRequests | None = None,
        concurrency: int = 32,
    ) -> None:
        """``timed`` gets the duration of each binding in seconds."""
        self._client = client.once()
        self._cluster = cluster
        self._writer = writer
        self._events = events
        self._finished = finished
        self._freed = freed
        self._timed = timed
        self._clock = clock
        self._random = random
        self._concurrency = concurrency
        overdue = overdue or OverdueRequests()
        self._slots = RequestSlots(
            concurrency, clock, overdue=overdue, backlog=client.backlog, changed=self._check_capacity
        )
        # What is in trouble has slots of its own, so that it never delays what is not.
        self._trouble_slots = RequestSlots(concurrency // 2, clock, overdue=overdue, backlog=client.backlog)
        # So have Reservations: those of pods limit what is decided about.
        self._other_slots = RequestSlots(concurrency // 2, clock, overdue=overdue, backlog=client.backlog)
        self._workers = SlotWorkers(self._slots, self._carry_out, self._not_sent, "bind")
        self._other_workers = SlotWorkers(self._other_slots, self._carry_out, self._not_sent, "bind Reservation")
        self._tasks: asyncio.TaskGroup
        self._begun: dict[Binding, float] = {}
        """The start of each binding that is not finished."""
        self._pausing = 0
        self._unreached = 0
        """The number of bindings whose last request did not reach any API server."""
        self.has_capacity = True
        """Whether the binder accepts more bindings without a queue building up. Once it is full, this is False until
        half of the bindings are done: deciding is cheapest for many pods in a row. What is in trouble does not count,
        unless no server is reached at all."""
        self._lack = Lack("bindings")
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def unfinished(self) -> int:
        """The number of bindings that are under way at the API server, or about to be; not those that wait until they
        are sent again."""
        return len(self._begun) - self._pausing

    def submit(self, binding: Binding) -> None:
        """Bind the pod soon; its placement has been assumed."""
        binding.stage, request = Stage.BINDING, binding.request
        self._begun[binding] = self._clock.monotonic()
        self._idle.clear()
        workers = self._workers if request.kind is PODS else self._other_workers
        workers.submit(request.namespace, binding)
        if self._slots.pressing >= 2 * self._concurrency:
            self.has_capacity = False

    async def idle(self) -> None:
        """Wait until no binding is under way at the API server; some may wait until they are sent again."""
        await self._idle.wait()

    def check(self) -> str:
        """For health checks: a description of the bindings that have exceeded the deadline; empty when there are
        none."""
        now = self._clock.monotonic()
        late = [now - begun for begun in self._begun.values() if now - begun > DEADLINE]
        return f"{len(late)} bindings have been under way for up to {max(late):.0f}s" if late else ""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._workers.run(), name="binder")
            self._tasks.create_task(self._other_workers.run(), name="binder of Reservations")
            self._tasks.create_task(self._trouble_slots.run(), name="binder-trouble-slots")

    async def _carry_out(self, binding: Binding, ticket: Ticket) -> bool:
        """Send the request, whose turn it is; whether the server has answered it."""
        begun = binding.engine.times.begin()
        try:
            await self._send(binding)
        except KubeError as error:
            self._trouble(binding, begun, error, ticket.sent_at)
            return is_of_the_request(error)
        except Exception as error:
            self._end(binding, begun, _broken(binding, error))
        else:
            self._end(binding, begun, BOUND)
        return True

    def _not_sent(self, binding: Binding, error: UnsentError) -> None:
        self._trouble(binding, binding.engine.times.begin(), error, -inf)

    async def _send(self, binding: Binding) -> None:
        """Raises KubeError; the pod is bound if it does not."""
        request = binding.request
        if not self._cluster.has_node(request.node_name):
            raise UnsentError(f"node {request.node_name} was deleted before the pod was bound to it")
        try:
            await request.send(self._client)
        except MalformedObjectError as error:
            # Only the body of the response is malformed: the server has bound the pod.
            logger.debug("the response to the binding of %s: %s", request.name, error)
        if self._lack.text:
            self._lack.is_over()

    def _end(self, binding: Binding, begun: float, ended: Outcome) -> None:
        binding.engine.times.end("Bind", begun, "Success" if ended.result is Result.BOUND else "Error")
        self._timed(self._clock.monotonic() - self._begun.pop(binding))
        if len(self._begun) == self._pausing:
            self._idle.set()
        self._finished(binding, ended)

    def _trouble(self, binding: Binding, begun: float, failure: KubeError, sent_at: float) -> None:
        """Go on with a binding whose first request, sent at ``sent_at``, has failed; in a task of its own, which holds
        no slot."""

        async def end() -> None:
            try:
                ended = await self._in_trouble(binding, failure, sent_at)
            except Exception as error:
                ended = _broken(binding, error)
            self._end(binding, begun, ended)

        self._tasks.create_task(end(), name="binding in trouble")

    async def _in_trouble(self, binding: Binding, failure: KubeError, sent_at: float) -> Outcome:
        """The outcome of a binding whose first request has failed, see ``_trouble``."""
        pod, request = binding.placement.pod, binding.request
        attempts = Attempts(PATIENCE, self._clock, self._random)
        free_at = -inf
        """Until then, a request may still be carried out."""
        while True:
            if _may_be_done(failure):
                logger.warning("binding of pod %s to %s: is it done? %s", pod.key, request.node_name, failure)
                if isinstance(failure, TransportError):
                    free_at = max(free_at, sent_at + _CARRIED_OUT)
                found = await self._read(binding)
                if found is not None:
                    return found
            pause = attempts.pause_after(failure)
            if pause is None:
                break
            shown = await self._pause(binding, pause, failure)
            if shown is not None:
                return shown
            try:
                ticket = await self._trouble_slots.turn(request.namespace)
            except UnsentError as error:
                failure = error
                break
            sent_at, answered = ticket.sent_at, True
            try:
                await self._send(binding)
            except KubeError as error:
                failure, answered = error, is_of_the_request(error)
            else:
                return BOUND
            finally:
                self._trouble_slots.give_back(ticket, answered=answered)
        return await self._refused(binding, _detail(failure, attempts.count), failure, free_at)

    async def _refused(self, binding: Binding, detail: str, failure: KubeError, free_at: float) -> Outcome:
        """The outcome of a binding that is not sent again."""
        if isinstance(failure, ApiStatusError) and (lack := lack_for_write(failure, "bind pods")):
            self._lack.found(lack)
        left, found = free_at - self._clock.monotonic(), None
        if left > 0 and self._cluster.has_node(binding.request.node_name):
            found = await self._pause(binding, left, failure) or await self._read(binding)
        return found or Outcome(Result.REFUSED, detail)

    async def _read(self, binding: Binding) -> Outcome | None:
        """The outcome according to the object itself; None if it has no node yet. Repeats until there is a response, or
        an event that shows the outcome: meanwhile the room is kept, and nothing else."""
        request, backoff = binding.request, Backoff(_READS, self._clock, self._random)
        said_at = self._clock.monotonic() + PATIENCE.seconds
        while True:
            try:
                get = partial(self._client.get, request.kind, request.name, request.namespace)
                node = request.node_of(await self._trouble_slots.send(_READ, get))
                return self._shown(binding) or outcome(node, request.node_name)
            except KubeError as error:
                # That it is not found may be a server that does not know its kind yet: events show that it is gone.
                failure = error
            if self._clock.monotonic() >= said_at:
                said_at = inf
                self._say_unknown(binding, failure)
            shown = await self._pause(binding, backoff.next(), failure)
            if shown is not None:
                return shown

    def _say_unknown(self, binding: Binding, failure: KubeError) -> None:
        pod, request = binding.placement.pod, binding.request
        note = (
            f"it is not known whether it is bound to {request.node_name}, where its room is kept until it can be read, "
            f"or is seen there: {failure}"
        )
        logger.warning("pod %s: %s", pod.key, note)
        if request.kind is PODS:
            self._events.pod_event(pod.pod, "Warning", "FailedScheduling", "Binding", note)

    def _shown(self, binding: Binding) -> Outcome | None:
        """The outcome according to the events about the pod; None while they leave it open."""
        return outcome(self._cluster.confirmed_node(binding.placement.pod.uid), binding.request.node_name)

    async def _pause(self, binding: Binding, seconds: float, failure: KubeError) -> Outcome | None:
        """Hold nothing for some time, after a request that has failed, or until events show the outcome; returns it."""
        unreached = isinstance(failure, TransportError) and not failure.maybe_applied
        self._pausing += 1
        self._unreached += unreached
        if self._unreached >= self._concurrency:
            # It is not for a pod, a node or a namespace that there is no answer: to decide about others is of no use.
            self.has_capacity = False
        if not self.unfinished:
            self._idle.set()
        try:
            pod = PODS, binding.placement.pod.key
            await self._writer.until(lambda: self._shown(binding) is not None, seconds, lambda: (pod,))
        finally:
            self._pausing -= 1
            self._unreached -= unreached
            self._idle.clear()
            self._check_capacity()
        return self._shown(binding)

    def _check_capacity(self) -> None:
        if (
            not self.has_capacity
            and self._slots.pressing <= self._concurrency
            and self._unreached <= self._concurrency // 2
        ):
            self.has_capacity = True
            self._freed()


def _broken(binding: Binding, error: Exception) -> Outcome:
    """Of an error in this program: the pod must not take the others down or stay assumed for ever."""
    logger.error("binding of pod %s failed", binding.placement.pod.key, exc_info=error)
    return Outcome(Result.REFUSED, f"{type(error).__name__}: {error}")


def _may_be_done(failure: KubeError) -> bool:
    """Whether the pod may have its node although the request failed. A conflict, or a pod that is not found, may mean
    that an earlier request was carried out, or that the pod is not what it was."""
    match failure:
        case ApiStatusError():
            return failure.is_server_error or failure.is_conflict or failure.is_not_found
        case TransportError():
            return failure.maybe_applied
        case _:
            return False


def _detail(failure: KubeError, attempts: int) -> str:
    asked = failure.retry_after if isinstance(failure, ApiStatusError) else None
    pause = (
        f"; the server asks for {asked:.0f} s until the next attempt"
        if asked and asked > PATIENCE.longest_pause
        else ""
    )
    return f"{failure}{pause}" if attempts == 1 else f"{failure}{pause}; it was tried {attempts} times"
