"""Extension controllers: what another package runs inside koordlet, in a loop and on a thread of its own.

A strategy decides on a snapshot alone and is over in an instant. A controller may read files, wait for a server and
look at what was measured before; nobody waits for it. What it desires of the kernel's files goes the same way as what
strategies desire: the executor merges it with theirs, writes it and explains it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from koordinator.api.meta import ObjectReference
from koordinator.base.errors import KoordinatorError
from koordinator.base.side_thread import Call, UnfinishedCallError
from koordinator.koordlet.enforce.executor.desired_settings import Explanation
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.strategies.snapshot import Decision, Snapshot
from koordinator.koordlet.observe.metric_cache.kinds import MetricKind
from koordinator.koordlet.observe.metric_cache.ring import Samples
from koordinator.koordlet.observe.recent_usage import RecentUsage
from koordinator.kube.events import EventRecorder, EventType
from koordinator.node.kernel_files import Target

LONGEST_INTERVAL: Final = 3600.0
_RESPONSE_SECONDS: Final = 10.0

T = TypeVar("T")


class ControllerError(KoordinatorError):
    """A controller has failed, or asks after its end."""


@dataclass(frozen=True, slots=True)
class Controller:
    """``reconcile`` is called every ``interval`` seconds, and may take ``deadline`` seconds.

    The settings that it returns are all that the owner ``name`` desires from then on; None leaves them as they are.
    They stay as they are, too, when it raises or takes longer: it is called again, after pauses that grow.
    """

    name: str
    interval: float
    reconcile: Callable[[NodeAccess], Decision]
    deadline: float = 30.0
    close: Callable[[], None] | None = None
    """Called once, when koordlet ends, after the last call of ``reconcile``."""
    reads_best_effort: bool = False
    """As for a strategy: whether it needs ``Snapshot.best_effort``."""


@dataclass(slots=True)
class NodeAccess:
    """What one call of ``reconcile`` may use of koordlet, from its thread and until it returns.

    Everything but the snapshot is asked of koordlet's event loop. ControllerError after the end of the call, or if
    koordlet does not respond.
    """

    snapshot: Snapshot
    """Of the moment at which ``reconcile`` was called."""
    _usage: RecentUsage
    _executor: Executor
    _events: EventRecorder
    _owner: str
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _has_ended: bool = False

    def samples(self, kind: MetricKind, seconds: float, **labels: str) -> Samples:
        """Those of the last seconds in the metric cache. ValueError unless the labels are those of the kind."""
        return self._ask(lambda: self._usage.samples(kind, seconds, **labels))

    def averages(self, kind: MetricKind, seconds: float, values: Iterable[str]) -> list[float]:
        """The means over the last seconds of those with each of the values of the kind's one label, such as the UIDs of
        pods; those without samples are left out."""
        return self._ask(lambda: self._usage.averages(kind, seconds, values))

    def explain(self, target: Target) -> Explanation | None:
        """Who desires what of a file, what won, and what the kernel made of it; None if nobody desires anything."""
        return self._ask(lambda: self._executor.explain(target))

    def event(self, regarding: ObjectReference, type_: EventType, reason: str, note: str) -> None:
        """Record an event about an object, by the name of the controller."""
        self._ask(lambda: self._events.event(regarding, type_, reason, "Reconciling", note))

    def end(self) -> None:
        """The call is over."""
        self._has_ended = True

    def _ask(self, question: Callable[[], T]) -> T:
        call = Call(lambda: self._respond(question))
        try:
            self._loop.call_soon_threadsafe(call.run)
            return call.result(_RESPONSE_SECONDS)
        except (RuntimeError, UnfinishedCallError) as error:
            raise ControllerError(f"koordlet does not respond to {self._owner}: {error}") from error

    def _respond(self, question: Callable[[], T]) -> T:
        if self._has_ended:
            raise ControllerError(f"the call of {self._owner} is over: nobody waits for what it does")
        return question()
