"""The order of admissions, and which of them are refused where more come than can be answered.

An admission takes CPU of the one event loop. Without a queue the order would be that of arrival, and where requests
come faster than they are answered, each would be answered when its API server no longer waits for it. Here the pods of
the highest priority come first, and of more than the queue holds those of the lowest are refused at once.

A refusal is the HTTP status 429 with Retry-After, not an admission response that denies: API servers try again after
that time, as long as the timeout of the webhook allows, and then do what the administrator has chosen as its
failurePolicy.

The admission of a pod may wait for a write of its own, such as the usage of a quota, and the API server asks the
webhooks about that write, too. So the limit on admissions in flight is one of pods: a request that comes before pods
would otherwise wait for a pod that waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from math import ceil, inf
from typing import Final

from koordinator.api.codec import DecodeError, decode
from koordinator.api.kinds import PODS
from koordinator.api.meta import WireStruct
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.base.option_flags import duration, integer
from koordinator.base.said_once import SaidOnce

logger = logging.getLogger(__name__)

BEFORE_PODS: Final = 1 << 31
"""Above the priority of any pod: there are few other requests, and much depends on nodes, quotas and bindings."""
UNREADABLE: Final = (-1 << 31) - 1
"""Below the priority of any pod."""
_IN_A_TURN: Final = 4
"""Admissions between two looks at the sockets. The controllers take a millisecond of each turn of the event loop, which
shall not be as much as admissions get."""
_QUIET_SECONDS: Final = 60.0
_OVERLOADED: Final = (
    "more admissions come than can be answered: with %d waiting, those of the lowest priority are refused with 429, "
    "which API servers try again until the webhook's timeout; more replicas or CPU help"
)


_Queue = deque[asyncio.Future[None]]


@dataclass(frozen=True, slots=True)
class AdmissionQueueSettings:
    """How many admissions are handled and wait at one time, and when those that are refused may come again."""

    most_in_flight: int = integer(
        "webhook-max-requests-inflight",
        0,
        "Admissions in flight with which no admission of a pod begins any more: most of them wait for the API server, "
        "such as for the usage of a quota to be written. Those of other objects begin nevertheless, since pods may "
        "wait for them. 0: no limit.",
        minimum=0,
    )
    most_waiting: int = integer(
        "webhook-max-requests-waiting",
        500,
        "Admissions that wait for their turn; the latest of the lowest priority are refused with 429 beyond that. 500 "
        "take about a second.",
        minimum=1,
    )
    retry_after: timedelta = duration(
        "webhook-retry-after",
        timedelta(seconds=1),
        "When an API server may try again what was refused, in whole seconds (a fraction is rounded up); it does so "
        "for as long as the timeout of the webhook allows.",
        minimum=timedelta(seconds=1),
    )


class OverloadedError(KoordinatorError):
    """The request is refused, since others of at least its priority fill the queue."""


class AdmissionQueue:
    """One per process. Whoever has waited for ``turn`` handles its request at once, without giving way, and calls
    ``end`` when that is done."""

    def __init__(self, clock: Clock, settings: AdmissionQueueSettings | None = None) -> None:
        settings = settings or AdmissionQueueSettings()
        self.retry_after = str(ceil(settings.retry_after.total_seconds()))
        """The header of that name in a refusal."""
        self._most = settings.most_waiting
        self._most_in_flight = settings.most_in_flight or inf
        self._in_flight = 0
        self._waiting: dict[int, _Queue] = {}
        """By priority, in the order of arrival."""
        self._count = 0
        self._begun = 0
        """In this turn of the event loop."""
        self._is_due = False
        """Whether the next turn of the event loop begins others."""
        self._said = SaidOnce(logger, clock, quiet_seconds=_QUIET_SECONDS)

    async def turn(self, priority: Callable[[], int]) -> None:
        """Wait until it is the turn of a request of this priority, which is asked for only where it has to wait.
        Raises OverloadedError."""
        if not self._count and self._may_begin():
            self._begin()
            return
        value = priority()
        if self._count >= self._most:
            self._make_room(value)
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(value, deque()).append(waiting)
        self._count += 1
        if value == BEFORE_PODS:
            self._go_on_soon()
        try:
            await waiting
        except asyncio.CancelledError:
            if not waiting.cancelled() and waiting.exception() is None:
                self.end()
            raise

    def end(self) -> None:
        """A request that has had its turn is handled."""
        self._in_flight -= 1
        if self._count:
            self._go_on_soon()

    def _may_begin(self) -> bool:
        return self._begun < _IN_A_TURN and (self._in_flight < self._most_in_flight or BEFORE_PODS in self._waiting)

    def _begin(self) -> None:
        self._begun += 1
        self._in_flight += 1
        self._go_on_soon()

    def _go_on_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_due = False
        self._begun = 0
        while self._count and self._may_begin():
            waiting = self._take(max(self._waiting), deque.popleft)
            if not waiting.done():
                waiting.set_result(None)
                self._begin()

    def _make_room(self, priority: int) -> None:
        """Refuse the latest of the lowest priority, which may be the one that comes."""
        with self._said.round():
            self._said.say(_OVERLOADED % self._most)
        lowest = min(self._waiting)
        if priority <= lowest:
            raise OverloadedError
        refused = self._take(lowest, deque.pop)
        if not refused.done():
            refused.set_exception(OverloadedError())

    def _take(self, priority: int, pop: Callable[[_Queue], asyncio.Future[None]]) -> asyncio.Future[None]:
        """Remove one of a priority."""
        queue = self._waiting[priority]
        taken = pop(queue)
        if not queue:
            del self._waiting[priority]
        self._count -= 1
        return taken


class _Spec(WireStruct):
    priority: int | None = None


class _Object(WireStruct):
    spec: _Spec | None = None


class _Resource(WireStruct):
    resource: str = ""


class _Request(WireStruct):
    resource: _Resource = _Resource()
    sub_resource: str = ""
    object: _Object | None = None
    old_object: _Object | None = None


class _Review(WireStruct):
    request: _Request | None = None


def priority_of(body: bytes) -> int:
    """The priority of an AdmissionReview: that of its pod, or one above or below that of all pods."""
    try:
        request = decode(body, _Review).request
    except DecodeError:
        return UNREADABLE
    if request is None:
        return UNREADABLE
    if request.resource.resource != PODS.plural or request.sub_resource:
        return BEFORE_PODS
    pod = request.object or request.old_object
    return (pod.spec.priority or 0) if pod is not None and pod.spec is not None else 0
