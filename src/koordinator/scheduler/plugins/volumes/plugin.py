"""What the four plugins have in common: the index hears of events for them, and pods without volumes are left alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, cast

from koordinator.api.kinds import Kind
from koordinator.scheduler.engine.framework import EventHandler, FilterPlugin, PreFilterPlugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.plugins.volumes.index import VolumeIndex
from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes, volumes_of


class VolumePlugin(PreFilterPlugin, FilterPlugin, EventHandler, Explainer):
    """All that such a plugin reads of a pod is in its ``context``, which holds until the index changes."""

    watches: ClassVar[tuple[Kind[Any], ...]] = ()

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.index = VolumeIndex.of(view)

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def concerns(self, pod: PodInfo) -> bool:
        return volumes_of(pod) is not None

    def context_key(self, pod: PodInfo) -> Hashable:
        volumes = volumes_of(pod)
        if volumes is None:
            return None
        known = pod.memo.get(self.name)
        if known is not None and known[0] == self.index.changes:
            return cast("Hashable", known[1])
        context = self.context(volumes)
        pod.memo[self.name] = self.index.changes, context
        return context

    @abstractmethod
    def context(self, volumes: PodVolumes) -> Hashable:
        """Equal for pods that every node is evaluated by in the same way, now. Raises PluginError."""

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        volumes = volumes_of(pod)
        return self.lacks_of(volumes, state, row) if volumes is not None else ()

    @abstractmethod
    def lacks_of(self, volumes: PodVolumes, state: Any, row: int) -> Sequence[Lack]:
        """See Explainer.lacks."""

    @property
    def event_handler(self) -> EventHandler:
        return self.index
