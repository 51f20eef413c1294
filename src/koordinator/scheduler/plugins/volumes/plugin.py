"""What the four plugins have in common: they pass events on to the index, and leave pods without volumes alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, ClassVar, cast

from koordinator.api.kinds import CSI_NODES, Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.volume import CSINode
from koordinator.scheduler.engine.framework import FilterPlugin, Observer, PreFilterPlugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.volumes.index import VolumeIndex
from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes, volumes_of


class VolumePlugin(PreFilterPlugin, FilterPlugin, Observer):
    """All that such a plugin reads of a pod is in its ``context``, which holds until the index changes."""

    watches: ClassVar[tuple[Kind[Any], ...]] = ()

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.index = VolumeIndex.of(view)

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

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
        """Equal for pods that every node is judged by in the same way, now. Raises PluginError."""

    def on_node(self, row: int, node: Node) -> None:
        self.index.set_node(row, node)

    def on_node_removed(self, row: int, name: str) -> None:
        self.index.remove_node(row)

    def on_object(self, kind: Kind[Any], key: str, old: Object | None, new: Object | None) -> None:
        self.index.set_object(kind, key, old, new)


class RowVolumesPlugin(VolumePlugin):
    """Those whose verdict depends on the pods that are on a node."""

    follows_status: ClassVar[bool] = False

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        self.index.add_pod(row, pod)

    def on_pod_removed(self, row: int, pod: PodInfo) -> None:
        self.index.remove_pod(row, pod.uid)


class CsiNodePlugin(VolumePlugin):
    """Those that read what CSI drivers do on each node."""

    node_objects: ClassVar[tuple[Kind[Any], ...]] = (CSI_NODES,)

    def on_node_object(self, row: int, kind: str, obj: Object | None) -> None:
        if kind == CSI_NODES.name:
            self.index.set_csi_node(row, obj if isinstance(obj, CSINode) else None)
