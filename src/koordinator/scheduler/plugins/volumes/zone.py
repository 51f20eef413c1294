"""VolumeZone: a bound volume that is labelled with zones or regions is used in these only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from koordinator.api.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES, Kind
from koordinator.api.node import Node
from koordinator.api.volume import (
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    class_of_claim,
)
from koordinator.model.node_selector import NodePredicate
from koordinator.scheduler.engine.columns import Aspect, Ints, Rows
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, object_events
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.explain.explainer import Lack
from koordinator.scheduler.plugins.node_labels import NodeResults
from koordinator.scheduler.plugins.volumes.claims import claim_not_found, mode_not_set
from koordinator.scheduler.plugins.volumes.index import VolumePlugin
from koordinator.scheduler.plugins.volumes.migration import BETA_REGION, BETA_ZONE, REGION, ZONE, ZONES_DELIMITER
from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes

_LABELS: Final = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_CURRENT: Final[Mapping[str, str]] = {BETA_ZONE: ZONE, BETA_REGION: REGION}
_CONFLICT: Final = Reason("node(s) had no available volume zone", unresolvable=True)

Topology = tuple[str, frozenset[str]]
"""(label, the values that will do)."""


class VolumeZone(VolumePlugin):
    name = "VolumeZone"
    watches: ClassVar[tuple[Kind[Any], ...]] = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)

    def state_of(self, read: Any) -> NodeResults:
        topologies: tuple[Topology, ...] = read
        return self.index.tests.get(("zones", topologies), lambda: _zone_predicate(topologies))

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        test: NodeResults = state
        return (~test.passing(rows)).astype("int64")

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (_CONFLICT,)

    def lacks_of(self, volumes: PodVolumes, state: Any, row: int) -> Sequence[Lack]:
        node = self.view.columns.nodes[row]
        return list(self._misplaced(volumes, node)) if node is not None else ()

    def _misplaced(self, volumes: PodVolumes, node: Node) -> Iterator[Lack]:
        """The claims whose volumes are elsewhere."""
        for use in volumes.claims:
            claim = self.index.claims.stored(use.key)
            volume = self.index.volumes.stored(claim.spec.volume_name) if claim is not None else None
            for label, values in topologies_of(volume) if volume is not None else ():
                value = _value(node, label)
                if value not in values and volume is not None:
                    where = f"volume {volume.metadata.name} is where {label} is {' or '.join(sorted(values))}"
                    has = f"that of the node is {value}" if value is not None else "the node has no such label"
                    yield Lack(f"claim {use.claim}: its {where}, {has}")

    def events_to_register(self) -> frozenset[str]:
        changes = object_events(PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, actions=("Add", "Update"))
        return changes | {f"{STORAGE_CLASSES.name}/Add", EventKind.NODE_ADD, EventKind.NODE_LABEL}

    def hint(self, pod: PodInfo, volumes: PodVolumes, event: ClusterEvent) -> bool:
        match event.new:
            case PersistentVolumeClaim():
                return event.new.metadata.key in [use.key for use in volumes.named]
            case StorageClass():
                return event.new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
            case PersistentVolume() if isinstance(event.old, PersistentVolume):
                return topologies_of(event.old) != topologies_of(event.new)
            case _:
                return True

    def read(self, volumes: PodVolumes) -> tuple[Topology, ...] | str:
        """Those of all the pod's bound volumes, or why the pod cannot be scheduled."""
        found: list[Topology] = []
        for use in volumes.named:
            if not use.claim:
                return "PersistentVolumeClaim had no name"
            claim = self.index.claims.stored(use.key)
            if claim is None:
                return claim_not_found(use.claim)
            name = claim.spec.volume_name
            if not name:
                obstacle = self._unbound(claim)
                if obstacle is not None:
                    return obstacle
                continue
            volume = self.index.volumes.stored(name)
            if volume is None:
                return f'persistentvolume "{name}" not found'
            found += topologies_of(volume)
        return tuple(found)

    def _unbound(self, claim: PersistentVolumeClaim) -> str | None:
        """Why a claim without a volume stands in the way; None when it will get one where the pod goes."""
        class_name = class_of_claim(claim)
        if not class_name:
            return "PersistentVolumeClaim had no pv name and storageClass name"
        storage_class = self.index.storage_class(class_name)
        if storage_class is None:
            return f'storageclass.storage.k8s.io "{class_name}" not found'
        if storage_class.volume_binding_mode is None:
            return mode_not_set(storage_class)
        waits = storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        return None if waits else "PersistentVolume had no name"


def topologies_of(volume: PersistentVolume) -> list[Topology]:
    """The zones and regions that the volume is labelled with; a label that cannot be read says nothing."""
    found: list[Topology] = []
    for label in _LABELS:
        text = volume.metadata.labels.get(label)
        values = frozenset(value.strip() for value in text.split(ZONES_DELIMITER)) if text is not None else frozenset()
        if values and "" not in values:
            found.append((label, values))
    return found


def _zone_predicate(topologies: Iterable[Topology]) -> NodePredicate:
    """All of the topologies; a node without any zone or region is good for all volumes."""

    def passes(node: Node) -> bool:
        labels = node.metadata.labels
        if not any(label in labels for label in _LABELS):
            return True
        return all(_value(node, label) in values for label, values in topologies)

    return passes


def _value(node: Node, label: str) -> str | None:
    """By the label, or by that which has taken its place."""
    labels = node.metadata.labels
    return labels.get(label, labels.get(_CURRENT.get(label, label)))
