"""Binds pods to the nodes that were chosen for them, many at a time, and finds out the outcome of each binding.

A pod stays assumed on its node until the outcome at the API server is known. When a response is lost, or the server
fails, the pod is read and, if it still has no node, bound to the *same* node again: repeating that is harmless, whereas
releasing the resources while the lost request may yet be carried out would overcommit the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from enum import Enum
from random import Random
from typing import Final, Protocol

import msgspec

from koordinator.api.kinds import PODS
from koordinator.api.pod import Pod
from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.kube.errors import ApiStatusError, KubeError, MalformedObjectError
from koordinator.kube.interface import Client
from koordinator.kube.lacks import Lack, lack_for_write
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.queue.queued_pod import QueuedPod

logger = logging.getLogger(__name__)

_RETRY: Final = BackoffPolicy(initial=0.2, maximum=5.0)


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
    """``pod`` is what the API server returned if it had to be read; ``detail`` is the reason of a refusal."""

    result: Result
    detail: str = ""
    pod: Pod | None = None


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
DEADLINE: Final = 60.0
"""The deadline of a binding in seconds. A later binding is not cancelled: its pod stays assumed until the outcome is
known."""


class Binder:
    """``run`` sends up to ``concurrency`` requests at a time until cancelled; ``finished`` is called for every
    binding."""

    def __init__(
        self,
        client: Client,
        nodes: Nodes,
        finished: Finished,
        timed: Callable[[float], None],
        *,
        clock: Clock,
        random: Random,
        concurrency: int = 32,
    ) -> None:
        """``timed`` gets the duration of each binding in seconds."""
        self._client = client
        self._nodes = nodes
        self._finished = finished
        self._timed = timed
        self._clock = clock
        self._random = random
        self._concurrency = concurrency
        self._waiting: asyncio.Queue[Binding] = asyncio.Queue()
        self._begun: dict[int, float] = {}
        """By worker: the start of its current binding."""
        self._unfinished = 0
        self._full = False
        self._lack = Lack("bindings")
        self._drained = asyncio.Event()
        self._drained.set()

    @property
    def unfinished(self) -> int:
        """The number of bindings submitted and not finished."""
        return self._unfinished

    @property
    def has_capacity(self) -> bool:
        """Whether the binder accepts more bindings without a queue building up. Once it is full, this is False until
        half of the bindings are done: deciding is cheapest for many pods in a row."""
        return not self._full

    def submit(self, binding: Binding) -> None:
        """Bind the pod soon; its placement has been assumed."""
        self._unfinished += 1
        if self._unfinished >= 2 * self._concurrency:
            self._full = True
        self._drained.clear()
        self._waiting.put_nowait(binding)

    async def drained(self) -> None:
        """Wait until nothing is unfinished."""
        await self._drained.wait()

    def check(self) -> str:
        """For health checks: a description of the bindings that have exceeded the deadline; empty when there are
        none."""
        now = self._clock.monotonic()
        late = [now - begun for begun in self._begun.values() if now - begun > DEADLINE]
        return f"{len(late)} bindings have been under way for up to {max(late):.0f}s" if late else ""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as workers:
            for number in range(self._concurrency):
                workers.create_task(self._work(number), name=f"bind-{number}")

    async def _work(self, number: int) -> None:
        while True:
            binding = await self._waiting.get()
            started = self._begun[number] = self._clock.monotonic()
            times = binding.engine.times
            begun = times.begin()
            try:
                outcome = await self._bind(binding)
                times.end("Bind", begun, "Success" if outcome.result is Result.BOUND else "Error")
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # A plugin may raise anything; its pod must not take the worker down or stay assumed for ever.
                times.end("Bind", begun, "Error")
                logger.exception("binding of pod %s failed", binding.placement.pod.key)
                outcome = Outcome(Result.REFUSED, f"{type(error).__name__}: {error}")
            del self._begun[number]
            self._timed(self._clock.monotonic() - started)
            self._unfinished -= 1
            if self._unfinished <= self._concurrency:
                self._full = False
            if not self._unfinished:
                self._drained.set()
            self._finished(binding, outcome)

    async def _bind(self, binding: Binding) -> Outcome:
        placement = binding.placement
        pod, node_name = placement.pod, placement.node_name
        if not self._nodes.has_node(node_name):
            return Outcome(Result.REFUSED, f"node {node_name} was deleted before the pod was bound to it")
        metadata = pod.pod.metadata
        body = binding_body(metadata.namespace, metadata.name, metadata.uid, node_name, binding.annotations)
        backoff: Backoff | None = None
        while True:
            try:
                await self._client.create(PODS, body, metadata.namespace, name=metadata.name, subresource="binding")
            except MalformedObjectError:
                # Only the body of the response was malformed: the server has bound the pod.
                return _BOUND
            except KubeError as error:
                if isinstance(error, ApiStatusError) and not _is_inconclusive(error):
                    return await self._after_refusal(pod.pod, node_name, error)
                logger.warning(
                    "binding of pod %s to %s: outcome unknown, reading the pod: %s", pod.key, node_name, error
                )
                outcome = await self._after_unknown(pod.pod, node_name)
                if outcome is not None:
                    return outcome
                backoff = backoff or Backoff(_RETRY, self._clock, self._random)
                await self._clock.sleep(backoff.next())
            else:
                if self._lack.text:
                    self._lack.is_over()
                return _BOUND

    async def _after_refusal(self, pod: Pod, node_name: str, error: ApiStatusError) -> Outcome:
        """The server refused. A conflict may mean that an earlier request of ours got through, so the pod is read."""
        lack = lack_for_write(error, "bind pods")
        if lack:
            self._lack.found(lack)
        if not (error.is_conflict or error.is_not_found):
            return Outcome(Result.REFUSED, str(error))
        seen = await self._until_read(pod)
        return _outcome(pod, seen, node_name) or Outcome(Result.REFUSED, str(error), seen)

    async def _after_unknown(self, pod: Pod, node_name: str) -> Outcome | None:
        """The outcome according to the pod itself; None when it has no node yet."""
        return _outcome(pod, await self._until_read(pod), node_name)

    async def _until_read(self, pod: Pod) -> Pod | None:
        """The pod as the API server has it; None when it does not exist. Retries until there is a response."""
        backoff = Backoff(_RETRY, self._clock, self._random)
        metadata = pod.metadata
        while True:
            try:
                return await self._client.get(PODS, metadata.name, metadata.namespace)
            except ApiStatusError as error:
                if error.is_not_found:
                    return None
                logger.warning("pod %s cannot be read: %s", metadata.key, error)
            except KubeError as error:
                logger.warning("pod %s cannot be read: %s", metadata.key, error)
            await self._clock.sleep(backoff.next())


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


def _outcome(ours: Pod, seen: Pod | None, node_name: str) -> Outcome | None:
    if seen is None or seen.metadata.uid != ours.metadata.uid:
        return Outcome(Result.GONE)
    if seen.spec.node_name == node_name:
        return Outcome(Result.BOUND, pod=seen)
    if seen.spec.node_name:
        return Outcome(Result.ELSEWHERE, f"the pod is on {seen.spec.node_name}", seen)
    if seen.metadata.deletion_timestamp is not None:
        return Outcome(Result.GONE, pod=seen)
    return None


def _is_inconclusive(error: ApiStatusError) -> bool:
    """Whether the server may still have bound the pod, or may do so at a retry."""
    return error.is_server_error or error.is_too_many_requests
