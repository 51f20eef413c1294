"""The CustomResourceDefinitions of config/crd and the wire types, checked by a real kube-apiserver."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordinator.api import codec
from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, NODE_RESOURCE_TOPOLOGIES, RESERVATIONS, Kind
from tests.api.sample_objects import CUSTOM_KINDS, load_sample, without_empty_structs
from tests.real.control_plane import ControlPlane

_MANIFESTS = sorted((Path(__file__).resolve().parents[2] / "config/crd").glob("*.yaml"))
_SERVER_METADATA = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields")
_ESTABLISHED_SECONDS = 60.0
_CREATED, _CONFLICT, _UNPROCESSABLE = 201, 409, 422


@pytest.fixture(scope="module")
def plane(real_control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The shared control plane with all definitions installed and served; the objects made here go afterwards."""
    for manifest in _MANIFESTS:
        status, response = real_control_plane.request(
            "POST", CUSTOM_RESOURCE_DEFINITIONS.path(), yaml.safe_load(manifest.read_text())
        )
        assert status in (_CREATED, _CONFLICT), response
    for kind in CUSTOM_KINDS.values():
        _wait_until_served(real_control_plane, kind)
    yield real_control_plane
    for name, kind in CUSTOM_KINDS.items():
        metadata = load_sample(name)["metadata"]
        real_control_plane.request("DELETE", kind.path(metadata.get("namespace", ""), metadata["name"]))
    real_control_plane.request("DELETE", NODE_RESOURCE_TOPOLOGIES.path(name="served-twice"))
    real_control_plane.request("DELETE", RESERVATIONS.path(name="defaulted"))


def _wait_until_served(plane: ControlPlane, kind: Kind[Any]) -> None:
    deadline = time.monotonic() + _ESTABLISHED_SECONDS
    while plane.request("GET", kind.path())[0] != 200:
        assert time.monotonic() < deadline, f"{kind.qualified} is not served"
        time.sleep(0.2)


def _create(plane: ControlPlane, name: str) -> dict[str, Any]:
    """Create a sample, its status too, and return what the API server has stored."""
    kind, sample = CUSTOM_KINDS[name], load_sample(name)
    namespace, object_name = sample["metadata"].get("namespace", ""), sample["metadata"]["name"]
    status, response = plane.request("POST", kind.path(namespace), sample)
    assert status == _CREATED, response
    if sample.get("status"):
        path = kind.path(namespace, object_name)
        if plane.request("GET", f"{path}/status")[0] == 200:
            status, response = plane.request("PATCH", f"{path}/status", {"status": sample["status"]})
            assert status == 200, response
    return plane.request("GET", kind.path(namespace, object_name))[1]


def _without_server_metadata(document: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in document["metadata"].items() if key not in _SERVER_METADATA}
    return {**document, "metadata": metadata}


@pytest.mark.parametrize("manifest", _MANIFESTS, ids=lambda path: str(path.stem))
def test_a_definition_is_stored_as_it_is_written(plane: ControlPlane, manifest: Path) -> None:
    definition = yaml.safe_load(manifest.read_text())
    path = CUSTOM_RESOURCE_DEFINITIONS.path(name=definition["metadata"]["name"])
    stored = plane.request("GET", path)[1]
    stored["spec"].pop("conversion")
    for version in stored["spec"]["versions"]:
        version.pop("selectableFields", None)
    assert (stored["spec"], _violations(stored)) == (definition["spec"], [])


def _violations(stored: dict[str, Any]) -> list[str]:
    return [
        condition["message"]
        for condition in stored["status"]["conditions"]
        if condition["type"] == "NonStructuralSchema" or condition["status"] != "True"
    ]


@pytest.mark.parametrize("name", CUSTOM_KINDS)
def test_a_sample_survives_the_way_through_the_api_server_and_our_types(plane: ControlPlane, name: str) -> None:
    sample = load_sample(name)
    stored = _without_server_metadata(_create(plane, name))
    typed = codec.decode(json.dumps(stored), CUSTOM_KINDS[name].type)
    assert without_empty_structs(codec.decode_any(codec.encode(typed)), sample) == sample


def test_both_versions_of_a_node_resource_topology_are_served(plane: ControlPlane) -> None:
    document = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "served-twice"},
        "topologyPolicies": ["None"],
        "zones": [],
    }
    plane.request("POST", CUSTOM_KINDS["stored_node_resource_topology"].path(), document)
    status, response = plane.request("GET", NODE_RESOURCE_TOPOLOGIES.path(name="served-twice"))
    assert (status, response["apiVersion"]) == (200, "topology.node.k8s.io/v1alpha1")


def test_a_reservation_gets_its_defaults(plane: ControlPlane) -> None:
    document = {
        "apiVersion": RESERVATIONS.api_version,
        "kind": "Reservation",
        "metadata": {"name": "defaulted"},
        "spec": {"template": {}, "owners": [{"labelSelector": {}}], "preAllocationPolicy": {}},
    }
    response = plane.request("POST", RESERVATIONS.path(), document)[1]
    assert {key: response["spec"][key] for key in ("ttl", "allocateOnce", "preAllocationPolicy")} == {
        "ttl": "24h",
        "allocateOnce": True,
        "preAllocationPolicy": {"mode": "Default", "enableMultiple": False},
    }


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("reservation", {"spec": {"owners": []}}),
        ("reservation", {"spec": {"owners": [{}]}}),
        ("reservation", {"spec": {"template": None}}),
        ("reservation", {"spec": {"allocatePolicy": "Loose"}}),
        ("colocation_profile", {"spec": {"qosClass": "be"}}),
        ("nodemetric", {"spec": {"metricCollectPolicy": {"nodeMemoryCollectPolicy": "all"}}}),
        ("nodeslo", {"spec": {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": 101}}}),
        ("nodeslo", {"spec": {"cpuBurstStrategy": {"cpuBurstPercent": 10_001}}}),
        ("nodeslo", {"spec": {"systemStrategy": {"totalNetworkBandwidth": "fast"}}}),
        ("pod_migration_job", {"spec": {"podRef": None}}),
        ("elastic_quota", {"spec": {"max": {"cpu": "many"}}}),
        ("elastic_quota_profile", {"spec": {"quotaName": None}}),
        ("node_resource_topology", {"zones": [{"name": "node-0"}]}),
        ("cluster_network_topology", {"spec": {"networkTopologySpec": [{"labelKey": ["a"]}]}}),
        ("recommendation", {"spec": {"target": {"type": None}}}),
        ("device", {"spec": {"devices": [{"health": True, "topology": {"socketID": 1}}]}}),
    ],
)
def test_an_invalid_object_is_refused(plane: ControlPlane, name: str, change: dict[str, Any]) -> None:
    kind, document = CUSTOM_KINDS[name], _merged(load_sample(name), change)
    document["metadata"]["name"] = "invalid"
    status, _ = plane.request("POST", kind.path(document["metadata"].get("namespace", "")), document)
    assert status == _UNPROCESSABLE


def _merged(document: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """RFC 7386, as far as it is needed here: null removes a member."""
    merged = dict(document)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key, {}), value) if isinstance(value, dict) else value
    return merged
