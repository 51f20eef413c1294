"""A cluster state with the four plugins on it, and beside it the plain picture that the reference reads."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

from koordinator.api.meta import Object, ObjectReference
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.volume import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from koordinator.scheduler.engine.binding_points import CycleState
from koordinator.scheduler.engine.evaluation import Evaluation
from tests.scheduler.plugins.volumes import reference, storage
from tests.scheduler.plugins.volumes.reference import SELECTED, FilterResult, Picture
from tests.scheduler.plugins.volumes.storage import Storage


class ClusterFixture:
    """The plugins and the plain picture, told the same."""

    def __init__(self) -> None:
        self.storage = Storage()
        self.picture = Picture()
        self.classes: dict[Hashable, Evaluation] = {}
        self.reserved: dict[str, Pod] = {}

    def add(self, *objects: Object) -> None:
        for obj in objects:
            self.storage.add(obj)
            self._objects(obj)[_key(obj)] = obj
            self._no_longer_assumed(obj)

    def remove(self, obj: Object) -> None:
        known = self._objects(obj).pop(_key(obj), None)
        if known is not None:
            self.storage.remove(known)
            self._no_longer_assumed(obj)

    def _no_longer_assumed(self, obj: Object) -> None:
        """What the API says wins."""
        self.picture.assumed_claims.pop(obj.metadata.key, None)
        self.picture.assumed_volumes.pop(obj.metadata.key, None)

    def _objects(self, obj: Object) -> dict[str, Any]:
        places: list[tuple[type[Object], dict[str, Any]]] = [
            (Node, self.picture.nodes),
            (CSINode, self.picture.csi_nodes),
            (Pod, self.picture.pods),
            (PersistentVolumeClaim, self.picture.claims),
            (PersistentVolume, self.picture.volumes),
            (StorageClass, self.picture.classes),
            (CSIDriver, self.picture.drivers),
            (CSIStorageCapacity, self.picture.capacities),
            (VolumeAttachment, self.picture.attachments),
        ]
        return next(objects for kind, objects in places if isinstance(obj, kind))

    def filter_result(self, pod: Pod) -> FilterResult | dict[str, FilterResult]:
        """As the engine finds it: by the evaluation of the pod's class."""
        info, columns = self.storage.info(pod), self.storage.view.columns
        profile = self.storage.profile
        key = profile.class_key(info)
        evaluation = self.classes.get(key)
        if evaluation is None:
            evaluation = self.classes[key] = Evaluation(profile, self.storage.view, info)
        evaluation.refresh()
        if evaluation.plan.rejection is not None:
            return [(evaluation.plan.rejection[1].text, evaluation.plan.rejection[1].unresolvable)]
        found: dict[str, FilterResult] = {}
        for name, row in sorted(columns.row_of.items()):
            failure = evaluation.failure_of(row)
            reasons = failure.plugin.reasons(evaluation.pod, failure.state, failure.code) if failure else ()
            found[name] = sorted((reason.text, reason.unresolvable) for reason in reasons)
        return found

    def reserve(self, pod: Pod, name: str) -> None:
        info = self.storage.info(pod)
        node = self.storage.view.columns.reference(self.storage.row(name))
        self.storage.binding.reserve(CycleState(info), info, node)
        self.reserved[pod.metadata.name] = pod
        unbound = [each for each in reference.claims_of(self.picture, pod) if not reference.is_bound(each)]
        _, pairs, to_make = reference.place(self.picture, unbound, self.picture.nodes[name])
        for volume, claim in pairs:
            metadata = claim.metadata
            ref = ObjectReference(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid)
            spec = msgspec.structs.replace(volume.spec, claim_ref=ref)
            self.picture.assumed_volumes[volume.metadata.name] = msgspec.structs.replace(volume, spec=spec)
        for claim in to_make:
            annotations = {**claim.metadata.annotations, SELECTED: name}
            self.picture.assumed_claims[claim.metadata.key] = storage.changed(claim, annotations=annotations)


def _key(obj: Object) -> str:
    return obj.metadata.name if isinstance(obj, Pod) else obj.metadata.key
