"""What the four volume plugins of all profiles share: claims and volumes as assumed, and what depends on their changes.

It is notified of events in their place, once for all of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

from koordinator.api.kinds import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Kind,
)
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.volume import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    class_of_volume,
)
from koordinator.scheduler.engine.columns import Aspect, NamedAspect
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.framework import (
    SKIP_FILTER,
    EventHandler,
    FilterPlugin,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.explain.explainer import Explainer, Lack
from koordinator.scheduler.plugins.node_labels import KnownResults
from koordinator.scheduler.plugins.volumes.attached_volumes import (
    AttachedVolumes,
    PlacedPods,
    limits_of,
    migrated_plugins,
)
from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes, known_volumes, volumes_of
from koordinator.scheduler.plugins.volumes.volume_lists import VolumeLists, hosts_of_volume, is_free

T = TypeVar("T", bound=Object)


class Assumptions(Generic[T]):
    """Assumed objects of one kind over those that the API has (``stored``), both by key. ``on_change`` is called with
    the key of each that is assumed, and of each that is given up."""

    def __init__(self, stored: Callable[[], Mapping[str, T]], on_change: Callable[[str], None]) -> None:
        self._stored = stored
        self._on_change = on_change
        self._assumed: dict[str, T] = {}

    def get(self, key: str) -> T | None:
        """The object as assumed, or else as the API has it."""
        return self._assumed.get(key) or self._stored().get(key)

    def stored(self, key: str) -> T | None:
        """The object as the API has it."""
        return self._stored().get(key)

    def is_assumed(self, key: str) -> bool:
        return key in self._assumed

    def assume(self, obj: T) -> bool:
        """Suppose that the object is like this; False when the API has another version of it, so that it cannot be."""
        key = obj.metadata.key
        stored = self.stored(key)
        if stored is None or stored.metadata.resource_version != obj.metadata.resource_version:
            return False
        self._assumed[key] = obj
        self._on_change(key)
        return True

    def restore(self, obj: T) -> bool:
        """Give up what was assumed of this version; returns whether there was anything to give up."""
        key = obj.metadata.key
        assumed = self._assumed.get(key)
        if assumed is None or assumed.metadata.resource_version != obj.metadata.resource_version:
            return False
        del self._assumed[key]
        self._on_change(key)
        return True

    def observe(self, key: str, new: T | None) -> None:
        """The API shows the object like this now, or (None) not any more."""
        assumed = self._assumed.get(key)
        if assumed is None:
            return
        if new is None or new.metadata.resource_version != assumed.metadata.resource_version:
            del self._assumed[key]

    def observe_all(self) -> None:
        """Events may have been missed."""
        for key in list(self._assumed):
            self.observe(key, self.stored(key))


_NAME: Final = "volumes"
CSI_NODE: Final = NamedAspect.of_objects(CSI_NODES)
"""What the CSINode of a node says."""


class VolumeIndex(EventHandler):
    """One for a view. ``changes`` grows with everything that may change what a pod with volumes is evaluated by, rows
    apart: a row on which something changed is touched."""

    handles_status_updates: ClassVar[bool] = False

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self.changes = 0
        self.reverted_by = ""
        """The uid of the pod whose assumptions were the last to be given up."""
        self.claims: Assumptions[PersistentVolumeClaim] = Assumptions(
            lambda: view.objects_of(PERSISTENT_VOLUME_CLAIMS), self._claim_assumed
        )
        self.volumes: Assumptions[PersistentVolume] = Assumptions(
            lambda: view.objects_of(PERSISTENT_VOLUMES), self._list_again
        )
        self.on_reset()

    def on_reset(self) -> None:
        self.changes += 1
        self.claims.observe_all()
        self.volumes.observe_all()
        self.lists = VolumeLists()
        self.tests = KnownResults(self.view)
        self.placed = PlacedPods()
        self.csi_nodes: dict[int, CSINode] = {}
        self.csi_limits: dict[int, Mapping[str, int]] = {}
        """How many volumes each driver can attach on a row, where it says so."""
        self.attached = AttachedVolumes(self.view, self.placed, self.csi_nodes)
        self._class_versions: Counter[str] = Counter()
        self._free_versions: Counter[str] = Counter()
        self._changed: Mapping[str, Callable[[str, Any, Any], None]] = {
            PERSISTENT_VOLUME_CLAIMS.name: self._claim_changed,
            PERSISTENT_VOLUMES.name: self._volume_changed,
            STORAGE_CLASSES.name: self._class_changed,
            CSI_DRIVERS.name: self._driver_changed,
            CSI_STORAGE_CAPACITIES.name: self._capacity_changed,
            VOLUME_ATTACHMENTS.name: self.attached.attachment_changed,
        }

    @classmethod
    def of(cls, view: ClusterView) -> VolumeIndex:
        """The index of a view, created by the first caller."""
        return view.share(_NAME, lambda: cls(view))

    def assumptions(self, kind: Kind[Any]) -> Assumptions[Any]:
        """What is assumed of claims, or of volumes."""
        return self.claims if kind is PERSISTENT_VOLUME_CLAIMS else self.volumes

    def storage_class(self, name: str) -> StorageClass | None:
        return self.view.objects_of(STORAGE_CLASSES).get(name)

    def driver(self, name: str) -> CSIDriver | None:
        return self.view.objects_of(CSI_DRIVERS).get(name)

    def capacities(self, class_name: str) -> list[CSIStorageCapacity]:
        """The capacity that the drivers report, of one class."""
        found = self.view.objects_of(CSI_STORAGE_CAPACITIES).values()
        return [each for each in found if each.storage_class_name == class_name]

    def class_version(self, class_name: str) -> int:
        """Grows when the class, its driver or its capacities change."""
        return self._class_versions[class_name]

    def free_version(self, class_name: str) -> int:
        """Grows when free volumes of the class that are not tied to hosts change."""
        return self._free_versions[class_name]

    def migrated(self, row: int) -> frozenset[str]:
        """The in-tree plugins whose work CSI drivers do on ``row``."""
        return migrated_plugins(self.csi_nodes.get(row))

    # Events.

    def on_node(self, row: int, node: Node) -> None:
        self.tests.rows.on_node(row, node)

    def on_node_removed(self, row: int, name: str) -> None:
        self.tests.rows.on_node_removed(row, name)
        self.csi_nodes.pop(row, None)
        self.csi_limits.pop(row, None)
        self.changes += self.placed.remove_row(row)
        self.attached.forget(row)

    def on_node_object(self, row: int, kind: str, obj: Object | None) -> None:
        if kind == CSI_NODES.name:
            self._set_csi_node(row, obj if isinstance(obj, CSINode) else None)

    def _set_csi_node(self, row: int, node: CSINode | None) -> None:
        before = self.csi_nodes.pop(row, None)
        self.csi_limits.pop(row, None)
        if node is not None:
            self.csi_nodes[row] = node
            self.csi_limits[row] = limits_of(node)
        if before is node or (before and node and _drivers(before) == _drivers(node)):
            return
        self.attached.forget(row)
        self.view.columns.touch(row, self.view.columns.aspect(CSI_NODE))

    def reads_pod(self, pod: PodInfo) -> bool:
        return bool(pod.pod.spec.volumes)

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        if pod.pod.spec.volumes and (volumes := known_volumes(pod)) is not None and self.placed.add(row, volumes):
            self.attached.forget(row)
            self.changes += 1

    def on_pod_removed(self, row: int, pod: PodInfo) -> None:
        if self.placed.remove(row, pod.uid):
            self.attached.forget(row)
            self.changes += 1

    def on_object(self, kind: Kind[Any], key: str, old: Object | None, new: Object | None) -> None:
        changed = self._changed.get(kind.name)
        if changed is not None:
            self.changes += 1
            changed(key, old, new)

    def _claim_assumed(self, key: str) -> None:
        self.changes += 1

    def _claim_changed(self, key: str, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        self.claims.observe(key, new)
        self.attached.claim_changed(key, old, new)

    def _volume_changed(self, name: str, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        self.volumes.observe(name, new)
        self._list_again(name)
        self.attached.volume_changed(name, old, new)

    def _class_changed(self, name: str, old: StorageClass | None, new: StorageClass | None) -> None:
        self._class_versions[name] += 1
        self.attached.class_changed()

    def _driver_changed(self, name: str, old: CSIDriver | None, new: CSIDriver | None) -> None:
        for class_name, storage_class in self.view.objects_of(STORAGE_CLASSES).items():
            if storage_class.provisioner == name:
                self._class_versions[class_name] += 1

    def _capacity_changed(self, key: str, old: CSIStorageCapacity | None, new: CSIStorageCapacity | None) -> None:
        self._class_versions.update({each.storage_class_name for each in (old, new) if each is not None})

    def _list_again(self, name: str) -> None:
        """The volume, as assumed, has changed: pods that may have it now, or may not any more, are evaluated anew."""
        before, now = self.lists.known(name), self.volumes.get(name)
        self.changes += 1
        if now is not None:
            self.lists.set(now)
        else:
            self.lists.remove(name)
        for volume in (before, now):
            if volume is not None and is_free(volume):
                self._notify_seekers(volume)

    def _notify_seekers(self, volume: PersistentVolume) -> None:
        hosts = hosts_of_volume(volume)
        if hosts is None:
            self._free_versions[class_of_volume(volume)] += 1
            return
        for row in self.tests.rows.on_hosts(hosts):
            self.view.columns.touch(row, Aspect.NODE)


def _drivers(node: CSINode) -> tuple[object, ...]:
    """All that is read of it."""
    return node.spec, migrated_plugins(node)


class VolumePlugin(PreFilterPlugin, FilterPlugin, EventHandler, Explainer):
    """All that such a plugin reads of a pod is what ``read`` returns, which holds until the index changes."""

    watches: ClassVar[tuple[Kind[Any], ...]] = ()

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.index = VolumeIndex.of(view)

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def concerns(self, pod: PodInfo) -> bool:
        return volumes_of(pod) is not None

    @abstractmethod
    def read(self, volumes: PodVolumes) -> Any:
        """What nodes are evaluated by; empty if no node need be. A text says why the pod cannot be scheduled before
        something happens to its claims. Raises PluginError."""

    def key_of(self, read: Any) -> Hashable:
        """Equal for pods that every node is evaluated by in the same way, now; for what ``read`` returns that is
        neither empty nor a text. Raises PluginError."""
        key: Hashable = read
        return key

    def state_of(self, read: Any) -> Any:
        """The state for Filter, likewise."""
        return read

    def context_key(self, pod: PodInfo) -> Hashable:
        volumes = volumes_of(pod)
        if volumes is None:
            return None
        known = pod.memo.get(self.name)
        if known is None or known[0] != self.index.changes:
            read = self.read(volumes)
            key = self.key_of(read) if read and not isinstance(read, str) else read
            known = pod.memo[self.name] = self.index.changes, key
        return cast("Hashable", known[1])

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        volumes = volumes_of(pod)
        read = self.read(volumes) if volumes is not None else None
        if not read:
            return SKIP_FILTER
        if isinstance(read, str):
            return PreFilterResult(rejection=Reason(read, unresolvable=True))
        return PreFilterResult(self.state_of(read))

    def lacks(self, pod: PodInfo, state: Any, code: int, row: int) -> Sequence[Lack]:
        volumes = volumes_of(pod)
        return self.lacks_of(volumes, state, row) if volumes is not None else ()

    @abstractmethod
    def lacks_of(self, volumes: PodVolumes, state: Any, row: int) -> Sequence[Lack]:
        """See Explainer.lacks."""

    def queueing_hint(self, pod: PodInfo, event: ClusterEvent) -> bool:
        volumes = volumes_of(pod)
        return volumes is None or self.hint(pod, volumes, event)

    @abstractmethod
    def hint(self, pod: PodInfo, volumes: PodVolumes, event: ClusterEvent) -> bool:
        """See Plugin.queueing_hint."""

    @property
    def event_handler(self) -> EventHandler:
        return self.index
