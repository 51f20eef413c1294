"""Carries out binding cycles: events in, instructions out (see ``binding_cycle``), many bindings at a time.

A binding is *sent* when it gets a slot, and nearly always ends by that. One whose request has failed gives its slot
back and is *in trouble*: what it sends then has slots of its own, so that it never delays what is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from random import Random
from typing import Final, Protocol

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
from koordinator.scheduler.binding.binding_cycle import (
    ANSWERED,
    CARRIED_OUT,
    Answered,
    Binding,
    Broke,
    Delayed,
    End,
    Event,
    Failed,
    GivenUp,
    Instruction,
    Outcome,
    Pause,
    Permitted,
    PreBind,
    Read,
    Rejected,
    Result,
    Send,
    Shown,
    Wait,
    outcome,
    step,
)
from koordinator.scheduler.binding.pre_bind import PreBindStage, plugin_failed
from koordinator.scheduler.engine.binding_points import ClusterWriter
from koordinator.scheduler.engine.handle import Events
from koordinator.scheduler.engine.waiting_pods import PermitStatus, WaitingPods

logger = logging.getLogger(__name__)

_READ: Final = "(reads)"
"""The group of reads, which no namespace has as its name: no webhook delays those."""
_READS: Final = BackoffPolicy(initial=0.2, maximum=30.0)
"""As events show most outcomes, a server that does not let them be read is not asked often."""
DEADLINE: Final = PATIENCE.seconds + 2 * CARRIED_OUT
"""The deadline of a binding in seconds: it has ended by then, unless the API server cannot be read. A later binding is
not cancelled: its pod stays assumed until the outcome is known."""


class Cluster(Protocol):
    """The part of the cluster state that the binder uses."""

    def has_node(self, name: str) -> bool: ...

    def confirmed_node(self, uid: str) -> str | None:
        """The node that the API has an assumed pod on; empty while it is only assumed, None if the pod is gone."""


class Binder:
    """``run`` carries out what was begun until cancelled; ``freed`` is called when there is capacity again."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        writer: ClusterWriter,
        events: Events,
        waiting: WaitingPods,
        pre_bind: PreBindStage,
        freed: Callable[[], None],
        timed: Callable[[float], None],
        waited: Callable[[bool, float], None],
        *,
        clock: Clock,
        random: Random,
        overdue: OverdueRequests | None = None,
        concurrency: int = 32,
    ) -> None:
        """``timed`` gets the duration of each binding in seconds; ``waited`` whether one that has waited was allowed,
        and the seconds since its attempt began."""
        self._client = client.once()
        self._cluster = cluster
        self._writer = writer
        self._events = events
        self._waiting = waiting
        self._pre_bind = pre_bind
        self.finished: Callable[[Binding, Outcome], None]
        """Called once for every binding; set by who begins them."""
        self._freed = freed
        self._timed = timed
        self._waited = waited
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

    def begin(self, binding: Binding, waits: Mapping[str, float]) -> None:
        """Bind the pod, whose placement has been assumed, unless Permit plugins delay it: those in ``waits``, each for
        so many seconds at most."""
        event: Event
        if waits:
            event = Delayed(waits)
        else:
            try:
                event = Permitted(binding.engine.has_bind_work(binding.placement))
            except Exception as error:
                event = plugin_failed(binding, error)
        self._on(binding, event)

    def _on(self, binding: Binding, event: Event) -> None:
        """Begin what is to be done after the event; what comes of that is the next event."""
        binding.state, instruction = step(binding.state, event)
        match instruction:
            case Send():
                self._begun[binding] = self._clock.monotonic()
                self._idle.clear()
                workers = self._workers if binding.request.kind is PODS else self._other_workers
                workers.submit(binding.request.namespace, binding)
                if self._slots.pressing >= 2 * self._concurrency:
                    self.has_capacity = False
            case PreBind():
                self._pre_bind.submit(binding, self._on)
            case Wait(waits):
                pod, node_name = binding.placement.pod, binding.placement.node_name
                now, decided = self._clock.monotonic(), partial(self._decided, binding)
                self._waiting.add(pod, node_name, waits, now, decided)
            case End(ended):
                self.finished(binding, ended)

    def _decided(self, binding: Binding, status: PermitStatus) -> None:
        self._waited(status.allowed, self._clock.monotonic() - binding.started)
        if status.allowed:
            self.begin(binding, {})
        else:
            self._on(binding, Rejected(status.plugin, status.message))

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
        event = await self._send(binding, ticket)
        binding.state, instruction = step(binding.state, event)
        if type(instruction) is End:
            self._end(binding, begun, instruction.outcome)
            return True
        self._go_on(binding, begun, instruction)
        return _is_answered(event)

    def _not_sent(self, binding: Binding, error: UnsentError) -> None:
        binding.state, instruction = step(binding.state, Failed(error, -inf))
        self._go_on(binding, binding.engine.times.begin(), instruction)

    def _go_on(self, binding: Binding, begun: float, instruction: Instruction) -> None:
        """Go on with a binding whose first request has failed; in a task of its own, which holds no slot."""
        self._tasks.create_task(self._in_trouble(binding, begun, instruction), name="binding in trouble")

    async def _send(self, binding: Binding, ticket: Ticket) -> Answered | Failed | Broke:
        request = binding.request
        if not self._cluster.has_node(request.node_name):
            unsent = UnsentError(f"node {request.node_name} was deleted before the pod was bound to it")
            return Failed(unsent, ticket.sent_at)
        try:
            await request.send(self._client)
        except MalformedObjectError as error:
            # Only the body of the response is malformed: the server has bound the pod.
            logger.debug("the response to the binding of %s: %s", request.name, error)
        except KubeError as error:
            return Failed(error, ticket.sent_at)
        except Exception as error:
            return _broken(binding, error)
        if self._lack.text:
            self._lack.is_over()
        return ANSWERED

    def _end(self, binding: Binding, begun: float, ended: Outcome) -> None:
        binding.engine.times.end("Bind", begun, "Success" if ended.result is Result.BOUND else "Error")
        self._timed(self._clock.monotonic() - self._begun.pop(binding))
        if len(self._begun) == self._pausing:
            self._idle.set()
        self.finished(binding, ended)

    async def _in_trouble(self, binding: Binding, begun: float, instruction: Instruction) -> None:
        attempts = Attempts(PATIENCE, self._clock, self._random)
        while not isinstance(instruction, End):
            try:
                event = await self._event_after(binding, instruction, attempts)
            except Exception as error:
                event = _broken(binding, error)
            binding.state, instruction = step(binding.state, event)
        self._end(binding, begun, instruction.outcome)

    async def _event_after(self, binding: Binding, instruction: Instruction, attempts: Attempts) -> Event:
        """Carry out the instruction of a binding in trouble."""
        failure = binding.state.failure
        assert failure is not None, "a request has failed"
        match instruction:
            case Send():
                return await self._send_again(binding)
            case Read():
                return Shown(await self._read(binding))
            case Pause(seconds):
                pause = attempts.pause_after(failure) if seconds is None else seconds
                if pause is None:
                    return self._give_up(binding, failure, attempts.count)
                return Shown(await self._pause(binding, pause, failure))
        raise AssertionError(f"{instruction} is none for a binding in trouble")

    async def _send_again(self, binding: Binding) -> Event:
        try:
            ticket = await self._trouble_slots.turn(binding.request.namespace)
        except UnsentError as error:
            return Failed(error, -inf)
        answered = True
        try:
            event = await self._send(binding, ticket)
            answered = _is_answered(event)
        finally:
            self._trouble_slots.give_back(ticket, answered=answered)
        return event

    def _give_up(self, binding: Binding, failure: KubeError, attempts: int) -> GivenUp:
        if isinstance(failure, ApiStatusError) and (lack := lack_for_write(failure, "bind pods")):
            self._lack.found(lack)
        return GivenUp(attempts, self._clock.monotonic(), self._cluster.has_node(binding.request.node_name))

    async def _read(self, binding: Binding) -> Outcome | None:
        """The outcome according to the object itself; None if it has no node yet. Repeats until there is a response, or
        an event that shows the outcome: meanwhile the room is kept, and nothing else."""
        request, backoff = binding.request, Backoff(_READS, self._clock, self._random)
        if not binding.state.refusal:
            key, failed = binding.placement.pod.key, binding.state.failure
            logger.warning("binding of pod %s to %s: is it done? %s", key, request.node_name, failed)
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


def _broken(binding: Binding, error: Exception) -> Broke:
    """Of an error in this program: the pod must not take the others down or stay assumed for ever."""
    logger.error("binding of pod %s failed", binding.placement.pod.key, exc_info=error)
    return Broke(f"{type(error).__name__}: {error}")


def _is_answered(event: Event) -> bool:
    """Whether the server has answered the request itself."""
    return not isinstance(event, Failed) or is_of_the_request(event.failure)
