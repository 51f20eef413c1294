"""Claims, volumes, classes and nodes in few words, and a cluster state with the four volume plugins on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

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
from koordinator.api.meta import LabelSelector, Object, ObjectMeta, ObjectReference, OwnerReference
from koordinator.api.node import Node, NodeStatus
from koordinator.api.pod import (
    EphemeralVolumeSource,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolumeClaimVolumeSource,
    Pod,
    PodSpec,
    Volume,
)
from koordinator.api.quantity import Quantity
from koordinator.api.volume import (
    BIND_COMPLETED,
    CSIDriver,
    CSIDriverSpec,
    CSINode,
    CSINodeDriver,
    CSINodeSpec,
    CSIPersistentVolumeSource,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
    VolumeNodeAffinity,
    VolumeNodeResources,
    VolumeResourceRequirements,
)
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.framework import FilterPlugin, PreFilterPlugin
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.volumes.binding import VolumeBinding
from koordinator.scheduler.plugins.volumes.index import VolumePlugin
from koordinator.scheduler.plugins.volumes.limits import NodeVolumeLimits
from koordinator.scheduler.plugins.volumes.restrictions import VolumeRestrictions
from koordinator.scheduler.plugins.volumes.zone import VolumeZone

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLUGINS: tuple[type[VolumePlugin], ...] = (VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone)
"""In the order of the default profile."""
DRIVER = "csi.example.com"


def quantity(text: str | None) -> dict[str, Quantity]:
    return {"storage": Quantity.parse(text)} if text is not None else {}


def node(name: str, **labels: str) -> Node:
    """Bears its name as host name; ``zone`` stands for the label of that name, ``_`` in others for ``/``."""
    renamed = {"zone": "topology.kubernetes.io/zone", "region": "topology.kubernetes.io/region"}
    given = {renamed.get(key, key): value for key, value in labels.items()}
    return Node(
        metadata=ObjectMeta(name=name, uid=f"node-{name}", labels={"kubernetes.io/hostname": name, **given}),
        status=NodeStatus(allocatable={"pods": Quantity.parse("110")}),
    )


def pod(name: str, *claims: str, volumes: Iterable[Volume] = (), ephemeral: Iterable[str] = (), on: str = "") -> Pod:
    """``claims`` by name, ``ephemeral`` by the names of volumes."""
    used = [Volume(name=f"v{n}", persistent_volume_claim=_claim_source(claim)) for n, claim in enumerate(claims)]
    made = [Volume(name=each, ephemeral=EphemeralVolumeSource()) for each in ephemeral]
    metadata = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
    return Pod(metadata=metadata, spec=PodSpec(node_name=on, volumes=[*used, *made, *volumes]))


def _claim_source(name: str) -> PersistentVolumeClaimVolumeSource:
    return PersistentVolumeClaimVolumeSource(claim_name=name)


def claim(name: str, volume: str = "", size: str | None = "1Gi", **changes: Any) -> PersistentVolumeClaim:
    """Bound when it has a ``volume``, unless ``bound`` says otherwise; of the class ``wait`` unless ``of`` does."""
    annotations = dict(changes.get("annotations", {}))
    if changes.get("bound", bool(volume)):
        annotations[BIND_COMPLETED] = "yes"
    owner = changes.get("owner")
    owners = [OwnerReference(kind="Pod", name=owner, uid=f"uid-{owner}", controller=True)] if owner else []
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            resource_version=changes.get("version", "1"),
            annotations=annotations,
            owner_references=owners,
            deletion_timestamp=NOW if changes.get("deleting") else None,
        ),
        spec=PersistentVolumeClaimSpec(
            access_modes=changes.get("modes", ["ReadWriteOnce"]),
            resources=VolumeResourceRequirements(requests=quantity(size)),
            volume_name=volume,
            storage_class_name=changes.get("of", "wait"),
            selector=changes.get("selector"),
            volume_mode=changes.get("mode"),
            volume_attributes_class_name=changes.get("attributes"),
        ),
        status=PersistentVolumeClaimStatus(phase=changes.get("phase", "Bound" if volume else "Pending")),
    )


def volume(name: str, size: str = "1Gi", **changes: Any) -> PersistentVolume:
    """Free, of the class ``wait``, usable everywhere; ``on`` ties it to a host, ``zone`` to a zone, ``to`` to a
    claim."""
    affinity = changes.get("affinity")
    if "on" in changes:
        affinity = selector("kubernetes.io/hostname", changes["on"])
    if "zone" in changes:
        affinity = selector("topology.kubernetes.io/zone", changes["zone"])
    reference: str = changes.get("to", "")
    claim_ref = ObjectReference(namespace="default", name=reference, uid=changes.get("uid", f"uid-{reference}"))
    return PersistentVolume(
        metadata=ObjectMeta(
            name=name,
            resource_version=changes.get("version", "1"),
            labels=changes.get("labels", {}),
            deletion_timestamp=NOW if changes.get("deleting") else None,
        ),
        spec=PersistentVolumeSpec(
            capacity=quantity(size),
            access_modes=changes.get("modes", ["ReadWriteOnce"]),
            storage_class_name=changes.get("of", "wait"),
            claim_ref=claim_ref if reference else None,
            volume_mode=changes.get("mode"),
            volume_attributes_class_name=changes.get("attributes"),
            node_affinity=VolumeNodeAffinity(required=affinity) if affinity is not None else None,
            csi=changes.get("csi"),
            aws_elastic_block_store=changes.get("aws"),
            gce_persistent_disk=changes.get("gce"),
            portworx_volume=changes.get("portworx"),
        ),
        status=PersistentVolumeStatus(phase=changes.get("phase", "Bound" if reference else "Available")),
    )


def csi(handle: str, driver: str = DRIVER) -> CSIPersistentVolumeSource:
    return CSIPersistentVolumeSource(driver=driver, volume_handle=handle)


def selector(key: str, *values: str) -> NodeSelector:
    requirement = NodeSelectorRequirement(key=key, operator="In", values=list(values))
    return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=[requirement])])


def storage_class(name: str, mode: str | None = "WaitForFirstConsumer", **changes: Any) -> StorageClass:
    return StorageClass(
        metadata=ObjectMeta(name=name, resource_version=changes.get("version", "1")),
        provisioner=changes.get("provisioner", DRIVER),
        volume_binding_mode=mode,
        allowed_topologies=changes.get("allowed", []),
    )


def driver(name: str = DRIVER, *, counts_capacity: bool | None = True) -> CSIDriver:
    return CSIDriver(metadata=ObjectMeta(name=name), spec=CSIDriverSpec(storage_capacity=counts_capacity))


def capacity(name: str, host: str | None, size: str | None, *, largest: str | None = None) -> CSIStorageCapacity:
    """Room for volumes of the class ``wait`` on one host; None for storage that no node can use."""
    topology = LabelSelector(match_labels={"kubernetes.io/hostname": host}) if host is not None else None
    return CSIStorageCapacity(
        metadata=ObjectMeta(name=name, namespace="kube-system"),
        node_topology=topology,
        storage_class_name="wait",
        capacity=Quantity.parse(size) if size is not None else None,
        maximum_volume_size=Quantity.parse(largest) if largest is not None else None,
    )


def csi_node(name: str, limits: Mapping[str, int | None] | None = None, migrated: str = "") -> CSINode:
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": migrated} if migrated else {}
    drivers = [
        CSINodeDriver(name=each, allocatable=VolumeNodeResources(count=count) if count is not None else None)
        for each, count in (limits or {}).items()
    ]
    return CSINode(metadata=ObjectMeta(name=name, annotations=annotations), spec=CSINodeSpec(drivers=drivers))


def attachment(name: str, node_name: str, of: str, attacher: str = DRIVER) -> VolumeAttachment:
    source = VolumeAttachmentSource(persistent_volume_name=of)
    spec = VolumeAttachmentSpec(attacher=attacher, node_name=node_name, source=source)
    return VolumeAttachment(metadata=ObjectMeta(name=name), spec=spec)


_KINDS: Mapping[type[Object], Kind[Any]] = {
    PersistentVolumeClaim: PERSISTENT_VOLUME_CLAIMS,
    PersistentVolume: PERSISTENT_VOLUMES,
    StorageClass: STORAGE_CLASSES,
    CSIDriver: CSI_DRIVERS,
    CSIStorageCapacity: CSI_STORAGE_CAPACITIES,
    VolumeAttachment: VOLUME_ATTACHMENTS,
}

FilterResult = list[tuple[str, bool]]
"""(reason, unresolvable)."""


class Storage:
    """A cluster state that is fed objects, with the four plugins as event handlers."""

    def __init__(self, *objects: Object) -> None:
        self.view = ClusterView(NodeColumns(), now=NOW)
        self.state = ClusterState(self.view)
        self.plugins: dict[str, VolumePlugin] = {kind.name: kind(None, self.view) for kind in PLUGINS}
        self.state.add_event_handlers(self.plugins.values())
        self.add(*objects)

    @property
    def binding(self) -> VolumeBinding:
        plugin = self.plugins["VolumeBinding"]
        assert isinstance(plugin, VolumeBinding)
        return plugin

    @property
    def profile(self) -> Profile:
        names = tuple(kind.name for kind in PLUGINS)
        return Profile("koord-scheduler", self.plugins, PluginOrder(pre_filter=names, filter=names, reserve=names))

    def add(self, *objects: Object) -> None:
        """New and changed objects of any kind; pods that name a node are on it."""
        for each in objects:
            if isinstance(each, Node):
                self.state.set_node(each)
            elif isinstance(each, CSINode):
                self.state.set_node_object(CSI_NODES.name, each.metadata.name, each)
            elif isinstance(each, Pod):
                self.state.set_pod(self.info(each), each.spec.node_name)
            else:
                self.state.set_object(_KINDS[type(each)], each.metadata.key, each)

    def remove(self, *objects: Object) -> None:
        for each in objects:
            if isinstance(each, Node):
                self.state.remove_node(each.metadata.name)
            elif isinstance(each, CSINode):
                self.state.set_node_object(CSI_NODES.name, each.metadata.name, None)
            elif isinstance(each, Pod):
                self.state.remove_pod(each.metadata.uid)
            else:
                self.state.set_object(_KINDS[type(each)], each.metadata.key, None)

    def info(self, each: Pod) -> PodInfo:
        return make_pod_info(each)

    def row(self, name: str) -> int:
        return self.view.columns.row_of[name]

    def filter_results(self, name: str, each: Pod) -> dict[str, FilterResult] | FilterResult:
        """Node -> why the plugin rejects it; only the reason when it rejects all of them before looking."""
        plugin, info = self.plugins[name], self.info(each)
        assert isinstance(plugin, PreFilterPlugin)
        assert isinstance(plugin, FilterPlugin)
        names = sorted(self.view.columns.row_of)
        prepared = plugin.pre_filter(info)
        if prepared.rejection is not None:
            return [(prepared.rejection.text, prepared.rejection.unresolvable)]
        if prepared.skip:
            return {each: [] for each in names}
        rows = np.array([self.row(each) for each in names], dtype=np.intp)
        codes = plugin.filter(info, prepared.state, rows).tolist()
        assert [plugin.filter_one(info, prepared.state, row) for row in rows.tolist()] == codes
        return {
            each: [(r.text, r.unresolvable) for r in plugin.reasons(info, prepared.state, code)] if code else []
            for each, code in zip(names, codes, strict=True)
        }

    def texts(self, name: str, each: Pod) -> dict[str, list[str]] | str:
        """As ``results``, in short."""
        found = self.filter_results(name, each)
        if isinstance(found, list):
            return found[0][0]
        return {node_name: [text for text, _ in reasons] for node_name, reasons in found.items()}


def changed(obj: Any, **metadata: Any) -> Any:
    """The object with other metadata."""
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, **metadata))
