"""The extension points of a pod that has got its node: Reserve, Permit, PreBind, Bind, PostBind.

What plugins do here that takes time or needs the API goes through ClusterWriter, so that they hold no client.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from koordinator.api.kinds import Kind
from koordinator.scheduler.engine.framework import Plugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo


class ReservePlugin(Plugin):
    @abstractmethod
    def reserve(self, pod: PodInfo, row: int) -> None:
        """The pod will go to ``row``. Raises PluginError to refuse; then, as after any later failure, all reserve
        plugins' ``unreserve`` run in reverse order."""

    @abstractmethod
    def unreserve(self, pod: PodInfo, row: int) -> None:
        """Undo ``reserve``; must also work when it never ran."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The pod has its room and waits to be allowed, at most so many seconds."""

    seconds: float


class PermitPlugin(Plugin):
    @abstractmethod
    def permit(self, pod: PodInfo, row: int) -> Reason | Wait | None:
        """The pod is about to be bound to ``row``: None lets it, a reason refuses, Wait holds it back until this plugin
        allows it by ``view.waiting``."""


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

    async def patch(self, kind: Kind[Any], name: str, namespace: str, patch: Mapping[str, Any]) -> None:
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


class PreBindPlugin(Plugin):
    time_limit: float = 60.0
    """Seconds after which ``pre_bind`` is given up."""

    def pre_binds(self, pod: PodInfo, node_name: str) -> bool:
        """Whether there is anything to do for this pod; most pods then go the short way. Asked before every binding,
        so it must be quick (upstream: PreBindPreFlight)."""
        return True

    @abstractmethod
    async def pre_bind(self, pod: PodInfo, node_name: str, changes: PodChanges, writer: ClusterWriter) -> None:
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

    @abstractmethod
    async def bind(self, pod: PodInfo, node_name: str, writer: ClusterWriter) -> BindOutcome:
        """Bind the pod, or leave it to the next plugin. Raises to fail it."""


class PostBindPlugin(Plugin):
    @abstractmethod
    def post_bind(self, pod: PodInfo, node_name: str) -> None:
        """The pod is bound."""
