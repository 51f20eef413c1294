"""In-tree volumes as their CSI drivers know them."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.pod import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    CinderVolumeSource,
    GCEPersistentDiskVolumeSource,
    NodeSelector,
    PortworxVolumeSource,
    Volume,
)
from koordinator.scheduler.plugins.volumes.migration import (
    AWS,
    AZURE,
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    CsiVolume,
    TranslationError,
    translate,
    translated_affinity,
)
from tests.scheduler.plugins.volumes.storage import selector, volume

EBS_ZONE = "topology.ebs.csi.aws.com/zone"


def gce(name: str) -> Volume:
    return Volume(gce_persistent_disk=GCEPersistentDiskVolumeSource(pd_name=name))


def aws(volume_id: str) -> Volume:
    return Volume(aws_elastic_block_store=AWSElasticBlockStoreVolumeSource(volume_id=volume_id))


def azure(kind: str | None) -> Volume:
    return Volume(azure_disk=AzureDiskVolumeSource(disk_uri="u", kind=kind))


HANDLES: dict[str, tuple[Volume, dict[str, str], str]] = {
    "gce": (gce("x"), {}, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/x"),
    "gce in a zone": (gce("x"), {ZONE: "us-a-1"}, "projects/UNSPECIFIED/zones/us-a-1/disks/x"),
    "gce by beta label": (gce("x"), {BETA_ZONE: "us-b-1", ZONE: "z"}, "projects/UNSPECIFIED/zones/us-b-1/disks/x"),
    "gce in a region": (gce("x"), {ZONE: "us-a-1__us-a-2"}, "projects/UNSPECIFIED/regions/us-a/disks/x"),
    "aws": (aws("vol-1"), {}, "vol-1"),
    "aws with zone": (aws("aws://us-east-1a/vol-1"), {}, "vol-1"),
    "aws without zone": (aws("aws:///vol-1"), {}, "vol-1"),
    "azure": (azure(None), {}, "u"),
    "managed azure": (azure("Managed"), {}, "u"),
    "cinder": (Volume(cinder=CinderVolumeSource(volume_id="x")), {}, "x"),
    "portworx": (Volume(portworx_volume=PortworxVolumeSource(volume_id="x")), {}, "x"),
}


@pytest.mark.parametrize(("source", "labels", "handle"), HANDLES.values(), ids=HANDLES)
def test_handle(source: Volume, labels: dict[str, str], handle: str) -> None:
    found = translate(source, labels)
    assert found is not None
    assert found.handle == handle


def test_driver_and_plugin() -> None:
    assert translate(aws("vol-1"), {}) == CsiVolume("ebs.csi.aws.com", "vol-1", AWS)


def test_volume_of_no_plugin() -> None:
    assert translate(Volume(name="config"), {}) is None


BROKEN: dict[str, tuple[Volume, dict[str, str]]] = {
    "gce zones of two regions": (gce("x"), {ZONE: "us-a-1__us-b-1"}),
    "gce zones that are none": (gce("x"), {ZONE: "a__b"}),
    "aws without volume": (aws("aws://us-east-1a"), {}),
    "aws volume that is none": (aws("aws://us-east-1a/disk"), {}),
    "unmanaged azure": (azure("Dedicated"), {}),
}


@pytest.mark.parametrize(("source", "labels"), BROKEN.values(), ids=BROKEN)
def test_volume_without_counterpart(source: Volume, labels: dict[str, str]) -> None:
    with pytest.raises(TranslationError):
        translate(source, labels)


AFFINITIES: dict[str, tuple[dict[str, Any], NodeSelector | None]] = {
    "nothing": ({}, None),
    "zone": ({"affinity": selector(ZONE, "z1")}, selector(EBS_ZONE, "z1")),
    "beta zone": ({"affinity": selector(BETA_ZONE, "z1")}, selector(EBS_ZONE, "z1")),
    "label": ({"labels": {ZONE: "z1"}}, selector(EBS_ZONE, "z1")),
    "beta label": ({"labels": {BETA_ZONE: "z2__z1"}}, selector(EBS_ZONE, "z1", "z2")),
    "empty label": ({"labels": {ZONE: " "}}, None),
    "other key": ({"affinity": selector("disk", "ssd")}, selector("disk", "ssd")),
    "region alone": ({"affinity": selector(REGION, "r1")}, selector(REGION, "r1")),
    "beta region": (
        {"affinity": selector(BETA_REGION, "r1"), "labels": {BETA_ZONE: ""}},
        selector(REGION, "r1"),
    ),
}


@pytest.mark.parametrize(("changes", "expected"), AFFINITIES.values(), ids=AFFINITIES)
def test_affinity(changes: dict[str, Any], expected: NodeSelector | None) -> None:
    assert translated_affinity(AWS, volume("v", **changes)) == expected


def test_label_is_added_to_an_affinity_without_zone() -> None:
    found = translated_affinity(AWS, volume("v", affinity=selector("disk", "ssd"), labels={ZONE: "z1"}))
    assert found is not None
    assert [each.key for each in found.node_selector_terms[0].match_expressions] == ["disk", EBS_ZONE]


def test_plugin_without_topology_of_its_own() -> None:
    assert translated_affinity(AZURE, volume("v", affinity=selector(ZONE, "z1"))) == selector(ZONE, "z1")
