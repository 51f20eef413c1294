"""The extension points of a pod that has got its node: Reserve, Permit, PreBind, Bind, PostBind.

What plugins do here that takes time or needs the API goes through ClusterWriter, so that they hold no client.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol

from koordinator.api.kinds import Kind
from koordinator.api.meta import ObjectMeta
from koordinator.scheduler.engine.allocations import Allocation
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.cycle_state import CycleState
from koordinator.scheduler.engine.framework import EventHandler, Plugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo


class ReservePlugin(Plugin):
    @abstractmethod
    def reserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | None:
        """The pod will go to ``node``. A reason refuses: the pod waits for ``events_to_register``. An error is tried
        again after a back-off. Then, as after any later failure, all reserve plugins' ``unreserve`` run in reverse
        order."""

    @abstractmethod
    def unreserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        """Undo ``reserve``; must also work when it never ran. The node may be gone and its row another node's, see
        ``NodeColumns.is_current``."""


class AllocatorPlugin(Plugin, EventHandler):
    """Takes part at Reserve. The ledger keeps what it allocates."""

    allocates_as_filtered: ClassVar[bool] = True
    """Whether ``allocate`` sees the node as Filter does, without what is reserved there for the pod; False for one that
    does not need that, which saves work."""

    @abstractmethod
    def allocate(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Allocation | Reason | None:
        """What the pod gets on the node; None if it needs nothing of this plugin; a reason if it cannot have it, for
        which the pod waits as for a filter's. Changes nothing: ``on_allocated`` is called if the allocation is made,
        after all allocators have been asked. Also asked in simulations, of nodes as they might be."""

    def nominated_allocation(self, pod: PodInfo, node_name: str) -> Allocation | None:
        """What a pod that is nominated to the node is going to hold there, counted while others are looked at; None,
        the default, if what it requests is all that counts."""
        return None

    @abstractmethod
    def restore(self, pod: PodInfo, node: NodeReference) -> Allocation | None:
        """What the annotations of a pod that the API has on the node say that it holds; None for nothing. Asked when
        the API first shows the pod there, as after a restart, and when its annotations change."""

    @abstractmethod
    def on_allocated(self, row: int, pod: PodInfo, allocation: Allocation) -> None:
        """Count the allocation on ``row``, and touch the row with an aspect that the plugin reads."""

    @abstractmethod
    def on_released(self, row: int, pod: PodInfo, allocation: Allocation) -> None:
        """The opposite: once for each ``on_allocated``, with the same arguments."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The pod has its room and waits to be allowed, at most so many seconds."""

    seconds: float


class PermitPlugin(Plugin):
    @abstractmethod
    def permit(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | Wait | None:
        """The pod is about to be bound to ``node``: None lets it, a reason refuses, Wait holds it back until this
        plugin allows it by ``handle.waiting``."""


@dataclass(slots=True)
class PodChanges:
    """What plugins want written to a pod, or a reservation, before it is bound; None removes a key. One patch writes
    them all."""

    labels: dict[str, str | None] = field(default_factory=dict)
    annotations: dict[str, str | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations)


class ClusterWriter(Protocol):
    """I/O for the plugins that work while a pod is being bound. Raises KoordinatorError with what the server said."""

    async def patch(
        self, kind: Kind[Any], name: str, namespace: str, patch: Mapping[str, Any], subresource: str = ""
    ) -> None:
        """A JSON merge patch; with ``metadata.resourceVersion`` in it, only of that version."""

    async def until(
        self,
        condition: Callable[[], bool],
        seconds: float,
        objects: Callable[[], Iterable[tuple[Kind[Any], str]]] | None = None,
    ) -> bool:
        """Wait until ``condition`` holds; False when the time is up first. It is asked after each event about one of
        ``objects`` (kind and ``namespace/name``; asked for anew whenever ``condition`` does not hold), which may be
        nodes, pods and what plugins watch; without them after any event, ten times a second at most."""

    def now(self) -> datetime:
        """The wall time."""


class ObjectPatch(NamedTuple):
    """A JSON merge patch of one object."""

    name: str
    namespace: str
    patch: Mapping[str, Any]


class ControllerWriter(ClusterWriter, Protocol):
    """The same and more for plugins' controllers."""

    async def create(self, kind: Kind[Any], body: Mapping[str, Any], namespace: str) -> None:
        """Create an object."""

    async def delete(self, kind: Kind[Any], obj: ObjectMeta) -> None:
        """Delete this very object; that it is gone, or another one by now, is as good."""

    async def patch_each(self, kind: Kind[Any], patches: Iterable[ObjectPatch]) -> None:
        """Several at a time, each taken from ``patches`` when its turn comes. What fails is logged; a controller that
        looks again later needs to know no more."""

    async def evict(self, pod: ObjectMeta) -> None:
        """Ask for the pod's eviction, which heeds disruption budgets."""

    def warn(self, text: str) -> None:
        """Log what went wrong."""

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""

    def monotonic(self) -> float:
        """Seconds of a clock that only goes forwards."""


class PreBindPlugin(Plugin):
    time_limit: float = 60.0
    """Seconds after which ``pre_bind`` is given up."""

    def pre_binds(self, state: CycleState, pod: PodInfo, node: NodeReference) -> bool:
        """Whether there is anything to do for this pod; most pods then go the short way. Asked before every binding,
        so it must be quick (upstream: PreBindPreFlight)."""
        return True

    @abstractmethod
    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        """I/O that must be done before the binding, and what is to be written to the pod. Raises to fail it."""


class BindOutcome(Enum):
    """What a Bind plugin did."""

    BOUND = "bound"
    SKIPPED = "skipped"
    """The next Bind plugin is asked."""
    BY_API = "by API"
    """The pod shall be bound by its binding subresource, with all care for lost answers."""


class BindPlugin(Plugin):
    time_limit: float = 60.0
    """Seconds after which ``bind`` is given up."""

    def binds(self, pod: PodInfo) -> bool:
        """Whether ``bind`` may do anything for the pod but leave it to the next plugin, or to the API."""
        return True

    @abstractmethod
    async def bind(self, state: CycleState, pod: PodInfo, node: NodeReference, writer: ClusterWriter) -> BindOutcome:
        """Bind the pod, or leave it to the next plugin. Raises to fail it."""


class PostBindPlugin(Plugin):
    @abstractmethod
    def post_bind(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        """The pod is bound."""
