"""Storage kinds: claims, volumes, classes, and what a node's CSI drivers can take."""

from __future__ import annotations

from typing import Final

import msgspec

from koordinator.api.meta import LabelSelector, Object, ObjectMeta, ObjectReference, WireStruct
from koordinator.api.pod import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    CinderVolumeSource,
    GCEPersistentDiskVolumeSource,
    HostPathVolumeSource,
    NodeSelector,
    PortworxVolumeSource,
    ResourceList,
)
from koordinator.api.quantity import Quantity

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""On a claim: the volume controller has finished binding it."""
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""On a volume: its claim was chosen for it, not named by the user."""
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""On a claim: the node that a volume shall be made for."""
BETA_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
"""On claims and volumes: the storage class, before there was a field for it; wins over the field."""
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
"""On a CSINode: the in-tree volume plugins whose work CSI drivers do on the node."""
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""The provisioner of storage classes whose volumes are made by hand."""
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
"""On a volume: the provisioner that has made it, and is to delete it."""
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
"""On a storage class: ``true`` makes it the one of claims that name none."""
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"


class VolumeResourceRequirements(WireStruct):
    requests: ResourceList = {}


class PersistentVolumeClaimSpec(WireStruct):
    access_modes: list[str] = []
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    selector: LabelSelector | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(WireStruct):
    phase: str = ""
    access_modes: list[str] = []
    capacity: ResourceList = {}


class PersistentVolumeClaim(Object):
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class VolumeNodeAffinity(WireStruct):
    required: NodeSelector | None = None


class CSIPersistentVolumeSource(WireStruct):
    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(WireStruct):
    capacity: ResourceList = {}
    access_modes: list[str] = []
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    persistent_volume_reclaim_policy: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    host_path: HostPathVolumeSource | None = None
    csi: CSIPersistentVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None


class PersistentVolumeStatus(WireStruct):
    phase: str = ""


class PersistentVolume(Object):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


def class_of_claim(claim: PersistentVolumeClaim) -> str:
    """The name of the storage class of the claim; empty if none."""
    return _class_name(claim.metadata, claim.spec.storage_class_name or "")


def class_of_volume(volume: PersistentVolume) -> str:
    """The name of the storage class that the volume is of; empty if none."""
    return _class_name(volume.metadata, volume.spec.storage_class_name)


def _class_name(metadata: ObjectMeta, named: str) -> str:
    return metadata.annotations.get(BETA_STORAGE_CLASS, named)


class TopologySelectorLabelRequirement(WireStruct):
    key: str = ""
    values: list[str] = []


class TopologySelectorTerm(WireStruct):
    match_label_expressions: list[TopologySelectorLabelRequirement] = []


class StorageClass(Object):
    provisioner: str = ""
    volume_binding_mode: str | None = None
    reclaim_policy: str | None = None
    allow_volume_expansion: bool = False
    allowed_topologies: list[TopologySelectorTerm] = []


class VolumeNodeResources(WireStruct):
    count: int | None = None


class CSINodeDriver(WireStruct):
    name: str = ""
    node_id: str = msgspec.field(default="", name="nodeID")
    topology_keys: list[str] = []
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(WireStruct):
    drivers: list[CSINodeDriver] = []


class CSINode(Object):
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(WireStruct):
    attach_required: bool | None = None
    storage_capacity: bool | None = None


class CSIDriver(Object):
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Object):
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(WireStruct):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(WireStruct):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(Object):
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
