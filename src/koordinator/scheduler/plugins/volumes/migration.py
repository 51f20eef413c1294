"""In-tree volumes whose work CSI drivers have taken over: what such a volume is called and where it can be used.

Facts from k8s.io/csi-translation-lib 1.35. Azure Files and vSphere volumes are left out: upstream's scheduler does not
translate them either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import msgspec

from koordinator.api.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Volume
from koordinator.api.volume import PersistentVolume, PersistentVolumeSpec
from koordinator.base.errors import KoordinatorError

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
ZONES_DELIMITER: Final = "__"

GCE: Final = "kubernetes.io/gce-pd"
AWS: Final = "kubernetes.io/aws-ebs"
AZURE: Final = "kubernetes.io/azure-disk"
CINDER: Final = "kubernetes.io/cinder"
PORTWORX: Final = "kubernetes.io/portworx-volume"
DRIVERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        GCE: "pd.csi.storage.gke.io",
        AWS: "ebs.csi.aws.com",
        AZURE: "disk.csi.azure.com",
        CINDER: "cinder.csi.openstack.org",
        PORTWORX: "pxd.portworx.com",
    }
)
"""In-tree plugin -> the CSI driver that does its work."""
NOT_COUNTED: Final = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})
"""In-tree plugins that have a CSI driver, too, but whose volumes the scheduler never counts."""
_TOPOLOGY_KEYS: Final = {
    GCE: "topology.gke.io/zone",
    AWS: "topology.ebs.csi.aws.com/zone",
    CINDER: "topology.cinder.csi.openstack.org/zone",
}
_UNSPECIFIED: Final = "UNSPECIFIED"
_AWS_SCHEME: Final = "aws://"
_AWS_ID: Final = re.compile(r"vol-[^/]*")


class TranslationError(KoordinatorError, ValueError):
    """A volume that has no counterpart at the CSI driver."""


@dataclass(frozen=True, slots=True)
class CsiVolume:
    """What a volume is to a CSI driver."""

    driver: str
    handle: str
    plugin: str = ""
    """The in-tree plugin that it was written for."""


def plugin_of(source: Volume | PersistentVolumeSpec) -> str | None:
    """The in-tree plugin of an inline or a persistent volume; None when it has none that is translated."""
    sources = {
        GCE: source.gce_persistent_disk,
        AWS: source.aws_elastic_block_store,
        AZURE: source.azure_disk,
        CINDER: source.cinder,
        PORTWORX: source.portworx_volume,
    }
    return next((plugin for plugin, present in sources.items() if present is not None), None)


def translate(source: Volume | PersistentVolumeSpec, labels: Mapping[str, str]) -> CsiVolume | None:
    """The volume as its CSI driver knows it; None when no driver does. ``labels`` are those of a persistent volume.

    Raises TranslationError.
    """
    plugin = plugin_of(source)
    return CsiVolume(DRIVERS[plugin], _handle(source, labels), plugin) if plugin is not None else None


def _handle(source: Volume | PersistentVolumeSpec, labels: Mapping[str, str]) -> str:
    if source.gce_persistent_disk is not None:
        return f"projects/{_UNSPECIFIED}/{_gce_place(labels)}/disks/{source.gce_persistent_disk.pd_name}"
    if source.aws_elastic_block_store is not None:
        return _aws_handle(source.aws_elastic_block_store.volume_id)
    if source.azure_disk is not None:
        kind = source.azure_disk.kind
        if kind is not None and kind.lower() != "managed":
            raise TranslationError(f"kind({kind}) is not supported in csi migration")
        return source.azure_disk.disk_uri
    if source.cinder is not None:
        return source.cinder.volume_id
    return source.portworx_volume.volume_id if source.portworx_volume is not None else ""


def _gce_place(labels: Mapping[str, str]) -> str:
    zones = (labels.get(BETA_ZONE) or labels.get(ZONE, "")).split(ZONES_DELIMITER)
    if len(zones) == 1:
        return f"zones/{zones[0] or _UNSPECIFIED}"
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            raise TranslationError(f"zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}")
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        raise TranslationError(f"zones of one region expected, got: {', '.join(sorted(regions))}")
    return f"regions/{regions.pop()}"


def _aws_handle(volume_id: str) -> str:
    """From ``aws://zone/vol-1`` to ``vol-1``, which may also stand by itself."""
    if not volume_id.startswith(_AWS_SCHEME):
        return volume_id
    handle = volume_id.removeprefix(_AWS_SCHEME).partition("/")[2].strip("/")
    if not _AWS_ID.fullmatch(handle):
        raise TranslationError(f"Invalid format for AWS volume ({volume_id})")
    return handle


def translated_affinity(plugin: str, volume: PersistentVolume) -> NodeSelector | None:
    """Where the volume can be used, in the labels that nodes bear for the CSI driver."""
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    key = _TOPOLOGY_KEYS.get(plugin)
    if key is None:
        return required
    zone, region = _topology_labels(required, volume.metadata.labels)
    renamed = {region: REGION} if _values(required, region) else {}
    if _values(required, zone):
        renamed[zone] = key
    elif zone in volume.metadata.labels:
        required = _with_zones(required, key, volume.metadata.labels[zone])
    return _renamed(required, renamed) if required is not None else None


def _topology_labels(required: NodeSelector | None, labels: Mapping[str, str]) -> tuple[str, str]:
    """The labels of zone and region that the volume is written in; the affinity decides before the labels do."""
    keys = {expression.key for term in _terms(required) for expression in term.match_expressions}
    for present in (keys, labels):
        if ZONE in present:
            return ZONE, REGION
        if BETA_ZONE in present:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _terms(required: NodeSelector | None) -> Sequence[NodeSelectorTerm]:
    return required.node_selector_terms if required is not None else ()


def _values(required: NodeSelector | None, key: str) -> set[str]:
    expressions = [expression for term in _terms(required) for expression in term.match_expressions]
    return {value for expression in expressions if expression.key == key for value in expression.values}


def _with_zones(required: NodeSelector | None, key: str, label: str) -> NodeSelector | None:
    zones = sorted({zone.strip() for zone in label.split(ZONES_DELIMITER)} - {""})
    if not zones:
        return required
    added = NodeSelectorRequirement(key=key, operator="In", values=zones)
    terms = _terms(required) or [NodeSelectorTerm()]
    return NodeSelector(
        node_selector_terms=[
            msgspec.structs.replace(term, match_expressions=[*term.match_expressions, added]) for term in terms
        ]
    )


def _renamed(required: NodeSelector, names: Mapping[str, str]) -> NodeSelector:
    def rename(expression: NodeSelectorRequirement) -> NodeSelectorRequirement:
        return msgspec.structs.replace(expression, key=names.get(expression.key, expression.key))

    return NodeSelector(
        node_selector_terms=[
            msgspec.structs.replace(term, match_expressions=[rename(each) for each in term.match_expressions])
            for term in required.node_selector_terms
        ]
    )
