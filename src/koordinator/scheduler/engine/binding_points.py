"""One attempt to place one pod: its state (upstream: CycleState), PreFilter for the attempt, not the class, and the
extension points of a pod that has got its node: Reserve, Permit, PreBind, Bind, PostBind.

What PreFilter and PreScore prepare is kept for a class of identical pods. What holds for one attempt alone, such as
whether the pod's gang is complete or how much of its quota is left, is computed in each attempt, and what plugins write
into its state for each other lasts until the pod is bound or the attempt fails. Plugins do at the later points what
takes time or needs the API through ClusterWriter, so that they hold no client.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, ObjectMeta
from koordinator.scheduler.engine.allocations import Allocation, Nothing, Unknown
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.framework import EventHandler, Plugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo


class CycleState(msgspec.Struct, eq=False):
    """``pod`` is the pod of the attempt; ``node`` the node that was chosen, None before Reserve."""

    pod: PodInfo
    node: NodeReference | None = None
    _data: dict[Hashable, Any] | None = None

    def write(self, key: Hashable, value: Any) -> None:
        """Store ``value`` for plugins that read ``key`` later in this attempt."""
        if self._data is None:
            self._data = {}
        self._data[key] = value

    def read(self, key: Hashable, default: Any = None) -> Any:
        """The value last written to ``key``, else ``default``."""
        return default if self._data is None else self._data.get(key, default)


class CyclePreFilterPlugin(Plugin):
    """A plugin that is called where it is listed at PreFilter, in every attempt, before the plugins that are called
    once for each class."""

    sees_all_attempts: ClassVar[bool] = False
    """Whether it is called before plugins without this flag, wherever it is listed, so that none of these can end an
    attempt that it has not seen (upstream: a PreFilterTransformer)."""

    @abstractmethod
    def pre_filter_cycle(self, state: CycleState, pod: PodInfo) -> Reason | None:
        """The reason to end this attempt; None to continue. Called in every attempt, so it must be quick. The class of
        the pod keeps its filter results: PostFilter plugins are called as if this plugin had rejected every node, and
        may simulate. The pod waits for ``events_to_register``."""

    def refusal_if_tried(self, pod: PodInfo) -> Reason | None:
        """The reason for which an attempt of the pod would be ended at present, or within a simulation; called by
        plugins that plan for several pods, and every few seconds for the condition of a pod that this plugin keeps
        waiting. Changes nothing. The default is None."""
        return None

    def waits_as(self, pod: PodInfo) -> Hashable:
        """If not None: pods that this plugin has rejected and whose keys are equal wait for the same events, so that
        ``queueing_hint`` is called once for all of them. By default it is called for every pod."""
        return None


class ReservePlugin(Plugin):
    @abstractmethod
    def reserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | None:
        """Reserve for the pod on ``node``, which was chosen. A returned reason rejects the node: the pod waits for
        ``events_to_register``. After an error the pod is retried after a back-off. Then, as after any later failure,
        all reserve plugins' ``unreserve`` run in reverse order."""

    @abstractmethod
    def unreserve(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        """Undo ``reserve``; must also work when ``reserve`` never ran. The node may be gone and its row reused, see
        ``NodeColumns.is_current``."""


class AllocatorPlugin(Plugin, EventHandler):
    """A plugin that allocates at Reserve. The ledger keeps its allocations."""

    allocates_as_filtered: ClassVar[bool] = True
    """Whether ``allocate`` sees the node as Filter does, without what is reserved there for the pod; False for a plugin
    that does not need that, which saves work."""

    @abstractmethod
    def allocate(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Allocation | Reason | None:
        """The pod's allocation on the node; None if it needs nothing of this plugin; a reason if the allocation is
        impossible, for which the pod waits as after a Filter rejection. Changes nothing: ``on_allocated`` is called if
        the allocation is made, after ``allocate`` of all allocators. Also called in simulations, for hypothetical
        nodes."""

    def nominated_allocation(self, pod: PodInfo, node_name: str) -> Allocation | None:
        """The allocation that a nominated pod is expected to hold on the node, counted while other pods are filtered;
        None, the default, if what the pod requests is all that counts."""
        return None

    @abstractmethod
    def restore(self, pod: PodInfo, node: NodeReference) -> Allocation | Nothing | Unknown | None:
        """The allocation recorded in the annotations of a pod that the API shows on the node; None if there is none, or
        NOTHING if that means that the pod holds none, which releases an allocation that was made before; Unknown if
        there is one that cannot be read. Called when the API first shows the pod there, as after a restart, and when
        its annotations change."""

    @abstractmethod
    def on_allocated(self, row: int, pod: PodInfo, allocation: Allocation) -> None:
        """Count the allocation on ``row``, and touch the row with an aspect that the plugin reads. Called with Unknown
        only if ``restore`` returned that."""

    @abstractmethod
    def on_released(self, row: int, pod: PodInfo, allocation: Allocation) -> None:
        """The reverse of ``on_allocated``: called once for each of its calls, with the same arguments."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The pod is assumed on its node and waits for a plugin's permission, at most ``seconds``."""

    seconds: float


class PermitPlugin(Plugin):
    @abstractmethod
    def permit(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | Wait | None:
        """Called before the pod is bound to ``node``: None permits, a reason rejects, Wait delays the binding until
        this plugin allows it through ``handle.waiting``."""


@dataclass(slots=True)
class PodChanges:
    """What plugins want written to a pod, or a reservation, before it is bound; None removes a key. All are written in
    one patch."""

    labels: dict[str, str | None] = field(default_factory=dict)
    annotations: dict[str, str | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations)


class ClusterWriter(Protocol):
    """I/O for the plugins that work while a pod is being bound. Raises KoordinatorError with the server's error."""

    async def patch(
        self, kind: Kind[Any], name: str, namespace: str, patch: Mapping[str, Any], subresource: str = ""
    ) -> None:
        """Apply a JSON merge patch; with ``metadata.resourceVersion`` in it, only to that version."""

    async def until(
        self,
        condition: Callable[[], bool],
        seconds: float,
        objects: Callable[[], Iterable[tuple[Kind[Any], str]]] | None = None,
    ) -> bool:
        """Wait until ``condition`` holds; False on timeout. ``condition`` is evaluated after each event about one of
        ``objects`` (kind and ``namespace/name``; ``objects`` is called again whenever ``condition`` does not hold),
        which may be nodes, pods and what plugins watch; without ``objects``, after any event, ten times a second at
        most."""

    def now(self) -> datetime:
        """The wall time."""


class ObjectPatch(NamedTuple):
    """A JSON merge patch of one object."""

    name: str
    namespace: str
    patch: Mapping[str, Any]


class ControllerWriter(ClusterWriter, Protocol):
    """ClusterWriter with what plugins' controllers need in addition."""

    async def create(self, kind: Kind[Any], body: Mapping[str, Any], namespace: str) -> None:
        """Create an object."""

    async def delete(self, kind: Kind[Any], obj: ObjectMeta) -> None:
        """Delete this very object; if it is gone, or another object has its name by now, that counts as success."""

    def patch_each(self, kind: Kind[Any], patches: Iterable[ObjectPatch]) -> None:
        """Begin to apply patches, each by itself: nobody waits for one that is refused, or not answered. An object
        whose last patch is still under way is passed over. Failures are logged; a controller that reconciles again
        later needs no more."""

    def start(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Do ``work`` beside the controller, which does not wait for it; an unexpected error is logged."""

    async def evict(self, pod: ObjectMeta) -> None:
        """Evict the pod by the Eviction API, which respects disruption budgets."""

    def warn(self, text: str) -> None:
        """Log a warning."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``."""

    def monotonic(self) -> float:
        """A monotonic clock, in seconds."""


class PreBindPlugin(Plugin):
    time_limit: float = 60.0
    """Timeout of ``pre_bind`` in seconds."""

    def pre_binds(self, state: CycleState, pod: PodInfo, node: NodeReference) -> bool:
        """Whether there is anything to do for this pod; if not, as for most pods, PreBind is skipped. Called before
        every binding, so it must be quick (upstream: PreBindPreFlight)."""
        return True

    @abstractmethod
    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        """Do the I/O that must precede the binding, and add to ``changes`` what must be written to the pod. An error
        fails the binding."""


class BindOutcome(Enum):
    """What a Bind plugin did."""

    BOUND = "bound"
    SKIPPED = "skipped"
    """The next Bind plugin is called."""
    BY_API = "by API"
    """The pod shall be bound by its binding subresource, which copes with lost responses."""


@dataclass(frozen=True, slots=True)
class StatusPatch:
    """The object for which the pod stands gets the node by its status: the scheduler patches ``obj`` in this version
    with ``status``, and copes with lost responses as for a pod."""

    kind: Kind[Any]
    obj: Object
    status: Mapping[str, Any]
    node_of: Callable[[Any], str | None]
    """The node of a state of the object; empty without one, None if it gets none any more."""
    on_bound: Callable[[], None]
    """Called once the object has the node."""


class BindPlugin(Plugin):
    time_limit: float = 60.0
    """Timeout of ``bind`` in seconds."""

    def binds(self, pod: PodInfo) -> bool:
        """Whether ``bind`` may do anything for the pod other than leave it to the next plugin, or to the API."""
        return True

    @abstractmethod
    async def bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, writer: ClusterWriter
    ) -> BindOutcome | StatusPatch:
        """Bind the pod, leave it to the next plugin, or return what is to be written. An error fails the binding."""


class PostBindPlugin(Plugin):
    @abstractmethod
    def post_bind(self, state: CycleState, pod: PodInfo, node: NodeReference) -> None:
        """Called after the pod was bound."""
