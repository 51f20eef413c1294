"""One profile: the plugins of a scheduler name, in the order in which each extension point calls them."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec
import numpy as np

from koordinator.api.annotations import RESERVE_POD
from koordinator.scheduler.engine.binding_points import (
    AllocatorPlugin,
    BindPlugin,
    CyclePreFilterPlugin,
    PermitPlugin,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
)
from koordinator.scheduler.engine.framework import (
    MAX_NODE_SCORE,
    EventHandler,
    FilterPlugin,
    Plugin,
    PluginError,
    PreEnqueuePlugin,
    PreFilterPlugin,
    QueueSortPlugin,
    ScorePlugin,
    ScoreType,
    is_built_in,
    may_read,
)
from koordinator.scheduler.engine.framework_hooks import (
    FailureHandler,
    FilterTransformer,
    FindOneNodePlugin,
    PostFilterTransformer,
    PreferNodesPlugin,
    PreFilterTransformer,
    ReservationPreBindPlugin,
    ResizePodPlugin,
    ScoreTransformer,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import PostFilterPlugin


class PointTimes(Protocol):
    """Measures extension points: ``begin`` before the plugins of a point run, ``end`` afterwards, with the status
    ``Error`` if one has raised."""

    def begin(self) -> float: ...

    def end(self, point: str, begun: float, status: str = "Success") -> None: ...


class _Untimed:
    def begin(self) -> float:
        return 0.0

    def end(self, point: str, begun: float, status: str = "Success") -> None:
        return


UNTIMED: Final[PointTimes] = _Untimed()


P = TypeVar("P", bound=Plugin)
_numbers = itertools.count()


class _HashedOnce:
    """A key of many parts. A tuple computes its hash at each look-up, which takes longer than the rest of the
    look-up."""

    __slots__ = ("_hash", "parts")

    def __init__(self, parts: tuple[Hashable, ...]) -> None:
        self.parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _HashedOnce) and self.parts == other.parts


class PodPoints(msgspec.Struct):
    """What a profile has found of the pods that share a memo; it holds while ``version`` is the view's
    ``concerns_version``, and the key while their context keys are ``contexts``."""

    version: int
    profile: Profile
    """Without the plugins that do not concern them."""
    own: _HashedOnce | None = None
    """What all plugins read of the pods themselves; None until it is needed, as is the key."""
    key: Hashable = None
    """See ``Profile.class_key``."""
    contexts: list[Hashable] = []


@dataclass(frozen=True, slots=True)
class PluginOrder:
    """Plugin names per extension point, as the configuration expands them. Names without an instance are skipped."""

    queue_sort: tuple[str, ...] = ()
    pre_enqueue: tuple[str, ...] = ()
    pre_filter: tuple[str, ...] = ()
    filter: tuple[str, ...] = ()
    post_filter: tuple[str, ...] = ()
    pre_score: tuple[str, ...] = ()
    score: tuple[tuple[str, int], ...] = ()
    """With weights."""
    reserve: tuple[str, ...] = ()
    permit: tuple[str, ...] = ()
    pre_bind: tuple[str, ...] = ()
    bind: tuple[str, ...] = ()
    post_bind: tuple[str, ...] = ()


def _listed(point: type[P], order: str) -> cached_property[tuple[P, ...]]:
    """The plugins that implement ``point``, of those that are listed under ``order``."""
    return cached_property(lambda profile: profile._at(getattr(profile.order, order), point))


@dataclass(frozen=True)
class Profile:
    """The plugin instances by name, and the order in which each extension point calls them."""

    scheduler_name: str
    plugins: Mapping[str, Plugin]
    order: PluginOrder
    idle: frozenset[Plugin] = frozenset()
    """The plugins and parts that are left out, see ``for_pod``."""
    whole: Profile | None = None
    """The profile that they are left out of."""

    # The plugins and parts of each extension point, in the order in which it calls them.
    pre_enqueue = _listed(PreEnqueuePlugin, "pre_enqueue")
    filter = _listed(FilterPlugin, "filter")
    post_filter = _listed(PostFilterPlugin, "post_filter")
    reserve = _listed(ReservePlugin, "reserve")
    allocators = _listed(AllocatorPlugin, "reserve")
    """Those that allocate at Reserve."""
    permit = _listed(PermitPlugin, "permit")
    pre_bind = _listed(PreBindPlugin, "pre_bind")
    reservation_pre_bind = _listed(ReservationPreBindPlugin, "pre_bind")
    bind = _listed(BindPlugin, "bind")
    post_bind = _listed(PostBindPlugin, "post_bind")
    pre_filter_transformers = _listed(PreFilterTransformer, "pre_filter")
    filter_transformers = _listed(FilterTransformer, "filter")
    post_filter_transformers = _listed(PostFilterTransformer, "post_filter")

    @cached_property
    def queue_sort(self) -> QueueSortPlugin | None:
        return next(iter(self._at(self.order.queue_sort, QueueSortPlugin)), None)

    @cached_property
    def pre_filter(self) -> tuple[PreFilterPlugin, ...]:
        """The listed plugins, then the filters that implement PreFilter without being listed there."""
        filters = [name for name in self.order.filter if self.part(name, FilterPlugin) is not None]
        return self._at(dict.fromkeys((*self.order.pre_filter, *filters)), PreFilterPlugin)

    @cached_property
    def pre_filter_cycle(self) -> tuple[CyclePreFilterPlugin, ...]:
        """The plugins whose PreFilter runs in each attempt."""
        listed = self._at(self.order.pre_filter, CyclePreFilterPlugin)
        return tuple(sorted(listed, key=lambda plugin: not plugin.sees_all_attempts))

    @cached_property
    def score(self) -> tuple[tuple[ScorePlugin, int], ...]:
        return tuple((plugin, weight) for name, weight in self.order.score for plugin in self._at((name,), ScorePlugin))

    @cached_property
    def score_type(self) -> ScoreType:
        """The integer type of the sum of all weighted scores: 16 bits if possible, since smaller arrays are searched
        faster."""
        highest = MAX_NODE_SCORE * sum(weight for _, weight in self.score)
        if highest <= np.iinfo(np.int16).max:
            return np.int16
        return np.int32 if highest <= np.iinfo(np.int32).max else np.int64

    @cached_property
    def score_transformers(self) -> tuple[ScoreTransformer, ...]:
        return self._at([name for name, _ in self.order.score], ScoreTransformer)

    @cached_property
    def allocation_transformers(self) -> tuple[FilterTransformer, ...]:
        """Those that adjust a node as allocators see it."""
        return self.filter_transformers if any(each.allocates_as_filtered for each in self.allocators) else ()

    @cached_property
    def finder(self) -> FindOneNodePlugin | None:
        return self.first(FindOneNodePlugin)

    @cached_property
    def preferring(self) -> PreferNodesPlugin | None:
        return self.first(PreferNodesPlugin)

    @cached_property
    def resizing(self) -> tuple[ResizePodPlugin, ...]:
        return self.all(ResizePodPlugin)

    @cached_property
    def failure_handlers(self) -> tuple[FailureHandler, ...]:
        return self.all(FailureHandler)

    def all(self, point: type[P]) -> tuple[P, ...]:
        """The plugins of the profile that implement ``point`` wherever they are listed, in the profile's order."""
        found = self._by_point.get(point)
        if found is None:
            found = self._by_point[point] = self._at(self.plugins, point)
        return cast("tuple[P, ...]", found)

    @cached_property
    def _by_point(self) -> dict[type[Any], tuple[Plugin, ...]]:
        """Cached results of ``all``: some points are looked up once for each pod, and isinstance is slow for abstract
        classes."""
        return {}

    def first(self, point: type[P]) -> P | None:
        """The first of them, for points where one is enough; None if that one is left out."""
        found = next(iter((self.whole or self).all(point)), None)
        return None if found in self.idle else found

    def part(self, name: str, point: type[P]) -> P | None:
        """The plugin of that name, or its part, that implements ``point``; None if there is none."""
        return next(iter(self._at((name,), point)), None)

    @cached_property
    def parts(self) -> tuple[Plugin, ...]:
        """Each plugin, followed by its parts."""
        return tuple(self._named(self.plugins))

    @cached_property
    def event_handlers(self) -> tuple[EventHandler, ...]:
        return tuple(part for part in self.parts if isinstance(part, EventHandler))

    @cached_property
    def _deciding(self) -> tuple[Plugin, ...]:
        """The plugins that read the pod to evaluate nodes."""
        evaluating = (*self.pre_filter, *self.filter, *(plugin for plugin, _ in self.score))
        transforming = (*self.pre_filter_transformers, *self.filter_transformers, *self.score_transformers)
        return tuple(dict.fromkeys((*evaluating, *transforming)))

    @cached_property
    def contexts(self) -> tuple[Plugin, ...]:
        """The plugins with a ``context_key``, without those that are left out."""
        deciding = [plugin for plugin in (self.whole or self)._deciding if plugin not in self.idle]
        return tuple(plugin for plugin in deciding if type(plugin).context_key is not Plugin.context_key)

    @cached_property
    def treats_equals_alike(self) -> bool:
        """Whether no plugin reads the name or the uid of a pod, so that equal pods may share what is derived from them.
        Known only of the plugins that come with this package."""
        return all(is_built_in(plugin) for plugin in self._deciding)

    def class_key(self, pod: PodInfo) -> Hashable:
        """Equal for pods that every plugin of this profile treats alike at this moment."""
        points = self.points(pod)
        if points.own is None:
            points.own = _HashedOnce(tuple([plugin.class_key(pod) for plugin in self._deciding]))
        contexts = [plugin.context_key(pod) for plugin in points.profile.contexts]
        if points.key is None or points.contexts != contexts:
            points.contexts, points.key = contexts, (points.own, points.profile._number, *contexts)
        return points.key

    def for_pod(self, pod: PodInfo) -> Profile:
        """The profile without the plugins that do not concern the pod, to run the points of an attempt; nodes are
        evaluated by the whole. Pods that the same plugins concern share it."""
        return self.points(pod).profile

    def points(self, pod: PodInfo) -> PodPoints:
        """What holds for the pod, and for all that share its memo; the same from the profile ``for_pod``."""
        if self.whole is not None:
            return self.whole.points(pod)
        version = self._selective[0].view.concerns_version if self._selective else 0
        known: PodPoints | None = pod.memo.get(self.memo)
        if known is None or known.version != version:
            idle = frozenset([plugin for plugin in self._selective if not may_read(plugin.concerns, pod)])
            if idle not in self._for_pods:
                self._for_pods[idle] = replace(self, idle=idle, whole=self) if self._selective else self
            own = known.own if known is not None else None
            known = pod.memo[self.memo] = PodPoints(version, self._for_pods[idle], own)
        return known

    @cached_property
    def _number(self) -> int:
        return next(_numbers)

    @cached_property
    def memo(self) -> str:
        """The key under which a pod's memo has its points. No other profile has it, also none of the same name."""
        return f"profile/{next(_numbers)}"

    @cached_property
    def _selective(self) -> tuple[Plugin, ...]:
        """The plugins that do not concern all pods."""
        return tuple(part for part in self.parts if type(part).concerns is not Plugin.concerns)

    @cached_property
    def _for_pods(self) -> dict[frozenset[Plugin], Profile]:
        """By the plugins that are left out."""
        return {}

    def is_reserve_pod(self, pod: PodInfo) -> bool:
        """Whether the pod is the reserve pod of a reservation; never in a profile that does not schedule these."""
        return bool(self.reservation_pre_bind) and pod.pod.metadata.annotations.get(RESERVE_POD) == "true"

    def is_bound_by_plugin(self, pod: PodInfo) -> bool:
        """Whether a Bind plugin may bind the pod itself. Called for every pod: a list costs half of a generator."""
        return bool([plugin for plugin in self.bind if plugin.binds(pod)])

    def gate(self, pod: PodInfo) -> tuple[str, str] | None:
        """The PreEnqueue plugin that keeps the pod out of the queue, and its reason; None admits the pod. Raises
        PluginError when a plugin fails."""
        for plugin in self.for_pod(pod).pre_enqueue:
            try:
                reason = plugin.pre_enqueue(pod.pod)
                if reason is not None:
                    return plugin.name, reason.text
            except Exception as error:
                text = f"plugin {plugin.name} failed in pre_enqueue: {type(error).__name__}: {error}"
                raise PluginError(text) from error
        return None

    def _at(self, names: Iterable[str], point: type[P]) -> tuple[P, ...]:
        return tuple(plugin for plugin in self._named(names) if isinstance(plugin, point))

    def _named(self, names: Iterable[str]) -> Iterator[Plugin]:
        plugins = (self.plugins[name] for name in names if name in self.plugins)
        return (part for plugin in plugins for part in (plugin, *plugin.parts) if part not in self.idle)
