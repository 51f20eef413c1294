"""The controllers of EndpointSlices and Endpoints on an API server."""

from __future__ import annotations

from typing import Any

from koordinator.api.document import Document
from koordinator.api.kinds import NODES, PODS
from koordinator.cluster.controllers.endpoints.controller import EndpointsController
from koordinator.cluster.controllers.endpoints.mirror_controller import EndpointSliceMirroringController
from koordinator.cluster.controllers.endpoints.slice_controller import EndpointSliceController
from koordinator.cluster.controllers.endpoints.types import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from koordinator.kube.interface import PatchType
from tests.cluster.controllers.objects import LABELS, template
from tests.cluster.controllers.running_controllers import Cluster, asynchronous, running_controllers
from tests.waiting import wait_for

_BOTH = (EndpointsController, EndpointSliceController)
_MANUAL: Document = {
    "metadata": {"name": "manual", "labels": {"team": "a"}, "annotations": {"note": "x"}},
    "subsets": [{"addresses": [{"ip": "10.9.9.9"}], "ports": [{"port": 80}]}],
}


async def _pod(cluster: Cluster, name: str, address: str, ready: bool = True) -> None:
    body = {"metadata": {"name": name, "labels": LABELS}, "spec": {**template()["spec"], "nodeName": "n"}}
    await cluster.client.create(PODS, body, "default")
    conditions = [{"type": "Ready", "status": str(ready)}]
    status = {"status": {"phase": "Running", "podIP": address, "conditions": conditions}}
    await cluster.client.patch(PODS, name, status, PatchType.MERGE, "default", subresource="status")


async def _slice(cluster: Cluster, holds: Any) -> Document:
    """The only slice, as soon as it is so."""
    await wait_for(lambda: len(found := cluster.api.all(ENDPOINT_SLICES)) == 1 and holds(found[0]))
    return cluster.api.all(ENDPOINT_SLICES)[0]


def _ready(found: Document) -> dict[str, bool]:
    return {each["targetRef"]["name"]: each["conditions"]["ready"] for each in found["endpoints"] or ()}


@asynchronous
async def test_the_pods_of_a_service_are_listed_and_followed() -> None:
    async with running_controllers(*_BOTH) as cluster:
        cluster.api.put(NODES, {"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}}})
        await _pod(cluster, "a", "10.0.0.1")
        await cluster.create(SERVICES, "web", {"selector": LABELS, "ports": [{"port": 80}]}, labels={"team": "a"})
        await _pod(cluster, "b", "10.0.0.2", ready=False)
        found = await _slice(cluster, lambda each: _ready(each) == {"a": True, "b": False})
        assert found["metadata"]["labels"] == {
            "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            "team": "a",
        }
        (owner,) = found["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Service", "web", True)
        assert found["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]
        assert found["endpoints"][0]["zone"] == "z"
        endpoints = await cluster.until(ENDPOINTS, "web", lambda each: "notReady" in str(each.get("subsets")))
        (subset,) = endpoints["subsets"]
        assert [[each["ip"] for each in subset[name]] for name in ("addresses", "notReadyAddresses")] == [
            ["10.0.0.1"],
            ["10.0.0.2"],
        ]
        other = {"metadata": {"labels": {"app": "other"}}}
        await cluster.patch(PODS, "a", other)
        await _slice(cluster, lambda each: _ready(each) == {"b": False})
        await cluster.patch(SERVICES, "web", {"metadata": {"labels": {"team": None}}})
        await _slice(cluster, lambda each: "team" not in each["metadata"]["labels"])
        await cluster.client.delete(SERVICES, "web", "default")
        await wait_for(lambda: not cluster.api.all(ENDPOINTS))


@asynchronous
async def test_a_slice_that_someone_deletes_or_changes_comes_back() -> None:
    async with running_controllers(*_BOTH) as cluster:
        await _pod(cluster, "a", "10.0.0.1")
        await cluster.create(SERVICES, "web", {"selector": LABELS, "ports": [{"port": 80}]})
        first = await _slice(cluster, lambda each: bool(each["endpoints"]))
        name = first["metadata"]["name"]
        await cluster.patch(ENDPOINT_SLICES, name, {"endpoints": [], "metadata": {"labels": {"x": "y"}}})
        fixed = await _slice(cluster, lambda each: bool(each["endpoints"]))
        assert fixed["metadata"]["labels"] == first["metadata"]["labels"]
        await cluster.client.delete(ENDPOINT_SLICES, name, "default")
        await _slice(cluster, lambda each: each["metadata"]["name"] != name and bool(each["endpoints"]))
        await cluster.client.delete(ENDPOINTS, "web", "default")
        await cluster.until(ENDPOINTS, "web", lambda each: bool(each["subsets"]))


@asynchronous
async def test_services_without_a_selector_are_left_to_those_who_made_them() -> None:
    async with running_controllers(*_BOTH) as cluster:
        await _pod(cluster, "a", "10.0.0.1")
        manual = {"metadata": {"name": "manual"}, "subsets": [{"addresses": [{"ip": "10.9.9.9"}]}]}
        await cluster.client.create(ENDPOINTS, manual, "default")
        await cluster.create(SERVICES, "manual", {"ports": [{"port": 80}]})
        outside = {"type": "ExternalName", "externalName": "a.example", "selector": LABELS}
        await cluster.create(SERVICES, "outside", outside)
        await cluster.create(SERVICES, "web", {"selector": LABELS, "ports": [{"port": 80}]})
        await _slice(cluster, lambda each: bool(each["endpoints"]))
        await cluster.client.delete(SERVICES, "manual", "default")
        await cluster.until(ENDPOINTS, "web", lambda each: bool(each["subsets"]))
        assert cluster.api.names(ENDPOINTS) == ["manual", "web"]


def _addresses(found: Document) -> list[str]:
    return [address for each in found["endpoints"] or () for address in each["addresses"]]


@asynchronous
async def test_endpoints_of_a_service_without_a_selector_are_mirrored() -> None:
    async with running_controllers(*_BOTH, EndpointSliceMirroringController) as cluster:
        await cluster.client.create(ENDPOINTS, _MANUAL, "default")
        await cluster.create(SERVICES, "manual", {"ports": [{"port": 80}]})
        found = await _slice(cluster, lambda each: _addresses(each) == ["10.9.9.9"])
        assert found["metadata"]["labels"] == {
            "team": "a",
            "kubernetes.io/service-name": "manual",
            "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
        }
        assert found["metadata"]["annotations"] == {"note": "x"}
        assert found["endpoints"][0]["conditions"] == {"ready": True}
        await cluster.patch(ENDPOINTS, "manual", {"metadata": {"annotations": {"note": None}}})
        await _slice(cluster, lambda each: not each["metadata"].get("annotations"))
        more = [{"notReadyAddresses": [{"ip": "10.9.9.8"}], "ports": [{"port": 81}]}]
        await cluster.patch(ENDPOINTS, "manual", {"subsets": more})
        changed = await _slice(cluster, lambda each: _addresses(each) == ["10.9.9.8"])
        assert changed["metadata"]["name"] == found["metadata"]["name"]
        await cluster.patch(
            ENDPOINTS, "manual", {"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}}
        )
        await wait_for(lambda: not cluster.api.all(ENDPOINT_SLICES))


@asynchronous
async def test_a_mirror_goes_with_its_service() -> None:
    async with running_controllers(EndpointSliceMirroringController) as cluster:
        await cluster.create(SERVICES, "manual", {"ports": [{"port": 80}]})
        await cluster.client.create(ENDPOINTS, _MANUAL, "default")
        await _slice(cluster, lambda each: bool(_addresses(each)))
        await cluster.client.delete(SERVICES, "manual", "default")
        await wait_for(lambda: not cluster.api.all(ENDPOINT_SLICES))
