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
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from math import inf
from random import Random
from typing import Final, Protocol

import msgspec

from koordinator.api.kinds import PODS
from koordinator.api.pod import Pod
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
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.queue.queued_pod import QueuedPod

logger = logging.getLogger(__name__)

_READ: Final = ""
"""The group of reads: no webhook delays those."""
_READS: Final = BackoffPolicy(initial=0.2, maximum=5.0)
_CARRIED_OUT: Final = 60.0
"""Seconds within which an API server carries out a request or gives it up (``--request-timeout``)."""
DEADLINE: Final = PATIENCE.seconds + 2 * _CARRIED_OUT
"""The deadline of a binding in seconds: it has ended by then, unless the API server cannot be read. A later binding is
not cancelled: its pod stays assumed until the outcome is known."""


class Result(Enum):
    """How a binding ended."""

    BOUND = "bound"
    ELSEWHERE = "elsewhere"
    """Another scheduler or client bound the pod to another node."""
    GONE = "gone"
    """The pod does not exist any more, or is being deleted."""
    REFUSED = "refused"
    """The pod has no node and this attempt is over."""


class Outcome(msgspec.Struct, frozen=True):
    """``detail`` is the reason of a refusal."""

    result: Result
    detail: str = ""


_BOUND: Final = Outcome(Result.BOUND)


class Binding(msgspec.Struct, frozen=True):
    """A binding in progress."""

    entry: QueuedPod
    placement: Placement
    engine: Engine
    started: float
    """When the attempt began, in monotonic seconds."""
    annotations: Mapping[str, str] = {}
    """Annotations that the pod gets together with its node."""


class Nodes(Protocol):
    """The part of the cluster state that the binder uses."""

    def has_node(self, name: str) -> bool: ...


Finished = Callable[[Binding, Outcome], None]


class Binder:
    """``run`` carries out what was submitted until cancelled; ``finished`` is called for every binding, and ``freed``
    when there is capacity again."""

    def __init__(
        self,
        client: Client,
        nodes: Nodes,
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
        self._nodes = nodes
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
        self._tasks: asyncio.TaskGroup | None = None
        self._ready: deque[tuple[Binding, Ticket, UnsentError | None]] = deque()
        """Those whose turn it is."""
        self._resting: list[asyncio.Future[None]] = []
        """The tasks that wait for the next binding: to make one for each costs more than all else here."""
        self._comes_back = False
        """Whether the task that runs looks for the next binding soon."""
        self._begun: dict[Ticket, float] = {}
        """By first ticket: the start of each binding that is not finished."""
        self._pausing = 0
        self._unreached = 0
        """The number of bindings whose last request did not reach any API server."""
        self._full = False
        self._lack = Lack("bindings")
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def unfinished(self) -> int:
        """The number of bindings that are under way at the API server, or about to be; not those that wait until they
        are sent again."""
        return len(self._begun) - self._pausing

    @property
    def has_capacity(self) -> bool:
        """Whether the binder accepts more bindings without a queue building up. Once it is full, this is False until
        half of the bindings are done: deciding is cheapest for many pods in a row. What is in trouble does not count,
        unless no server is reached at all."""
        return not self._full

    def submit(self, binding: Binding) -> None:
        """Bind the pod soon; its placement has been assumed."""

        def on_turn(ticket: Ticket, error: UnsentError | None) -> None:
            self._ready.append((binding, ticket, error))
            if not self._comes_back:
                self._wake()

        ticket = self._slots.ask(binding.placement.pod.pod.metadata.namespace, on_turn)
        self._begun[ticket] = self._clock.monotonic()
        self._idle.clear()
        if self._slots.pressing >= 2 * self._concurrency:
            self._full = True

    def _wake(self) -> None:
        """Have a task that carries out the next binding."""
        if self._resting:
            self._resting.pop().set_result(None)
        elif self._tasks is not None:
            self._tasks.create_task(self._work(), name="bind")

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
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._slots.run(), name="binder-slots")
                self._tasks.create_task(self._trouble_slots.run(), name="binder-trouble-slots")
                for _ in self._ready:
                    self._wake()
        finally:
            self._tasks = None
            self._resting.clear()

    async def _work(self) -> None:
        while True:
            while self._ready:
                await self._carry_out(*self._ready.popleft())
            if len(self._resting) >= 2 * self._concurrency:
                return
            rest = asyncio.get_running_loop().create_future()
            self._resting.append(rest)
            await rest

    async def _carry_out(self, binding: Binding, ticket: Ticket, unsent: UnsentError | None) -> None:
        times = binding.engine.times
        begun = times.begin()
        try:
            failure = unsent or await self._send(binding, self._slots, ticket)
            if failure is None:
                outcome = _BOUND
            else:
                for _ in self._ready:
                    self._wake()
                outcome = await self._in_trouble(binding, ticket, failure)
            times.end("Bind", begun, "Success" if outcome.result is Result.BOUND else "Error")
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # Its pod must not take the others down or stay assumed for ever.
            times.end("Bind", begun, "Error")
            logger.exception("binding of pod %s failed", binding.placement.pod.key)
            outcome = Outcome(Result.REFUSED, f"{type(error).__name__}: {error}")
        self._timed(self._clock.monotonic() - self._begun.pop(ticket))
        if len(self._begun) == self._pausing:
            self._idle.set()
        self._finished(binding, outcome)

    async def _send(self, binding: Binding, slots: RequestSlots, ticket: Ticket) -> KubeError | None:
        """Send the Binding, whose turn it is; how that failed, or None: the pod is bound."""
        placement, failure = binding.placement, None
        metadata, node_name = placement.pod.pod.metadata, placement.node_name
        slots.begin(ticket)
        try:
            if not self._nodes.has_node(node_name):
                return UnsentError(f"node {node_name} was deleted before the pod was bound to it")
            body = binding_body(metadata.namespace, metadata.name, metadata.uid, node_name, binding.annotations)
            await self._client.create(PODS, body, metadata.namespace, name=metadata.name, subresource="binding")
        except MalformedObjectError:
            # Only the body of the response was malformed: the server has bound the pod.
            pass
        except KubeError as error:
            failure = error
        finally:
            self._comes_back = slots is self._slots
            slots.give_back(ticket, answered=failure is None or is_of_the_request(failure))
            self._comes_back = False
        if failure is None and self._lack.text:
            self._lack.is_over()
        return failure

    async def _in_trouble(self, binding: Binding, ticket: Ticket, failure: KubeError) -> Outcome:
        """The outcome of a binding whose first request has failed; ``ticket`` was that of the request."""
        pod, node_name = binding.placement.pod.pod, binding.placement.node_name
        attempts = Attempts(PATIENCE, self._clock, self._random)
        free_at = -inf
        """Until then, a request may still be carried out."""
        while True:
            if _may_be_done(failure):
                logger.warning("binding of pod %s to %s: is it done? %s", pod.metadata.key, node_name, failure)
                if isinstance(failure, TransportError):
                    free_at = max(free_at, ticket.sent_at + _CARRIED_OUT)
                outcome = await self._read(pod, node_name)
                if outcome is not None:
                    return outcome
            pause = attempts.pause_after(failure)
            if pause is None:
                break
            await self._pause(pause, failure)
            try:
                ticket = await self._trouble_slots.turn(pod.metadata.namespace)
            except UnsentError as error:
                failure = error
                break
            again = await self._send(binding, self._trouble_slots, ticket)
            if again is None:
                return _BOUND
            failure = again
        return await self._refused(pod, node_name, _detail(failure, attempts.count), failure, free_at)

    async def _refused(self, pod: Pod, node_name: str, detail: str, failure: KubeError, free_at: float) -> Outcome:
        """The outcome of a binding that is not sent again."""
        if isinstance(failure, ApiStatusError) and (lack := lack_for_write(failure, "bind pods")):
            self._lack.found(lack)
        left = free_at - self._clock.monotonic()
        if left > 0 and self._nodes.has_node(node_name):
            await self._pause(left, failure)
            outcome = await self._read(pod, node_name)
            if outcome is not None:
                return outcome
        return Outcome(Result.REFUSED, detail)

    async def _read(self, pod: Pod, node_name: str) -> Outcome | None:
        """The outcome according to the pod itself; None if it has no node yet. Repeats until there is a response."""
        backoff, metadata = Backoff(_READS, self._clock, self._random), pod.metadata
        while True:
            try:
                get = partial(self._client.get, PODS, metadata.name, metadata.namespace)
                return _outcome(pod, await self._trouble_slots.send(_READ, get), node_name)
            except KubeError as error:
                if isinstance(error, ApiStatusError) and error.is_not_found:
                    return Outcome(Result.GONE)
                logger.warning("pod %s cannot be read: %s", metadata.key, error)
                failure = error
            await self._pause(backoff.next(), failure)

    async def _pause(self, seconds: float, failure: KubeError) -> None:
        """Hold nothing for some time, after a request that has failed."""
        unreached = isinstance(failure, TransportError) and not failure.maybe_applied
        self._pausing += 1
        self._unreached += unreached
        if self._unreached >= self._concurrency:
            # It is not for a pod, a node or a namespace that there is no answer: to decide about others is of no use.
            self._full = True
        if not self.unfinished:
            self._idle.set()
        try:
            await self._clock.sleep(seconds)
        finally:
            self._pausing -= 1
            self._unreached -= unreached
            self._idle.clear()
            self._check_capacity()

    def _check_capacity(self) -> None:
        if self._full and self._slots.pressing <= self._concurrency and self._unreached <= self._concurrency // 2:
            self._full = False
            self._freed()


def binding_body(
    namespace: str, name: str, uid: str, node_name: str, annotations: Mapping[str, str] | None = None
) -> bytes:
    """The encoded Binding. Names and uids hold no character that JSON would escape; because of the uid, the server
    refuses a pod of the same name that was created since. The server copies ``annotations`` to the pod."""
    more = f',"annotations":{msgspec.json.encode(annotations).decode()}' if annotations else ""
    return (
        f'{{"apiVersion":"v1","kind":"Binding",'
        f'"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}"{more}}},'
        f'"target":{{"apiVersion":"v1","kind":"Node","name":"{node_name}"}}}}'
    ).encode()


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


def _outcome(ours: Pod, seen: Pod, node_name: str) -> Outcome | None:
    if seen.metadata.uid != ours.metadata.uid:
        return Outcome(Result.GONE)
    if seen.spec.node_name == node_name:
        return _BOUND
    if seen.spec.node_name:
        return Outcome(Result.ELSEWHERE, f"the pod is on {seen.spec.node_name}")
    if seen.metadata.deletion_timestamp is not None:
        return Outcome(Result.GONE)
    return None


def _detail(failure: KubeError, attempts: int) -> str:
    asked = failure.retry_after if isinstance(failure, ApiStatusError) else None
    pause = (
        f"; the server asks for {asked:.0f} s until the next attempt"
        if asked and asked > PATIENCE.longest_pause
        else ""
    )
    return f"{failure}{pause}" if attempts == 1 else f"{failure}{pause}; it was tried {attempts} times"
