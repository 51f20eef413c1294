"""Volumes, claims and storage classes."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.timestamps import format_time
from koordinator.cluster.resource import Cause, RequestContext
from koordinator.cluster.strategy import containers as _containers  # noqa: F401  registers the claim's defaults
from koordinator.cluster.strategy.causes import forbidden, not_supported
from koordinator.cluster.strategy.containers import round_up_resources
from koordinator.cluster.strategy.defaults import default_each, defaults_of
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.table import Table

_STORAGE: Final = "io.k8s.api.storage.v1."


@defaults_of("io.k8s.api.core.v1.PersistentVolume")
def _volume(volume: Document) -> None:
    spec = volume["spec"]
    default_each(volume["status"], "phase", "Pending")
    default_each(spec, "persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    if isinstance(spec.get("hostPath"), dict):
        spec["hostPath"].setdefault("type", "")
    round_up_resources(spec.get("capacity"))


@defaults_of(f"{_STORAGE}StorageClass")
def _storage_class(obj: Document) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


@defaults_of(f"{_STORAGE}CSIDriverSpec")
def _csi_driver(spec: Document) -> None:
    spec.setdefault("attachRequired", True)
    for name in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"):
        spec.setdefault(name, False)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    default_each(spec, "volumeLifecycleModes", ["Persistent"])


@defaults_of("io.k8s.api.resource.v1.ExactDeviceRequest")
def _device_request(request: Document) -> None:
    default_each(request, "allocationMode", "ExactCount")
    if request["allocationMode"] == "ExactCount":
        default_each(request, "count", 1)


class VolumeStrategy(ObjectStrategy):
    """PersistentVolumes note when their phase last changed.

    The protection finalizers of the real server are left out: no controller here would ever take them away.
    """

    def __init__(self, table: Table) -> None:
        super().__init__("v1", "PersistentVolume", namespaced=False, table=table, status=True)

    def initialize(self, obj: Document, context: RequestContext) -> None:
        obj["status"]["lastPhaseTransitionTime"] = format_time(context.now)


class StorageClassStrategy(ObjectStrategy):
    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        modes = ("Immediate", "WaitForFirstConsumer")
        mode: Any = obj.get("volumeBindingMode")
        causes = [] if mode in modes else [not_supported("volumeBindingMode", mode, modes)]
        if old is not None:
            causes += [
                forbidden(name, f"updates to {name} are forbidden.")
                for name in ("parameters", "provisioner", "reclaimPolicy")
                if obj.get(name) != old.get(name)
            ]
        return causes
