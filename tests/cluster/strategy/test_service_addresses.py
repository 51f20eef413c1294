"""Cluster IPs and node ports: what a Service is given, what it may ask for, and what it keeps."""

from __future__ import annotations

import asyncio
import ipaddress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.document import Document
from koordinator.api.kinds import SERVICES
from koordinator.cluster.errors import ApiError
from koordinator.cluster.service_addresses import CLUSTER_IPS, NODE_PORTS, allocate
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from tests.cluster.controllers.running_controllers import asynchronous
from tests.in_memory_api import InMemoryApi

_PORT = {"port": 80}


async def _create(client: KubeClient, name: str, **spec: Any) -> None:
    body = {"metadata": {"name": name}, "spec": {"ports": [_PORT], **spec}}
    await client.create(SERVICES, body, "default")


def _spec(api: InMemoryApi, name: str) -> Document:
    spec: Document = api.document(SERVICES, name, "default")["spec"]
    return spec


@asynchronous
async def test_a_service_gets_an_address_of_its_own_and_a_headless_one_none() -> None:
    api = InMemoryApi()
    client = api.client()
    await asyncio.gather(*(_create(client, f"s{number}") for number in range(20)))
    await _create(client, "headless", clusterIP="None", selector={"a": "b"})
    addresses = {_spec(api, f"s{number}")["clusterIP"] for number in range(20)}
    assert len(addresses) == 20
    assert all(ipaddress.ip_address(each) in CLUSTER_IPS for each in addresses)
    assert _spec(api, "headless")["clusterIPs"] == ["None"]


@asynchronous
async def test_what_another_service_has_is_refused_and_is_free_once_that_is_gone() -> None:
    api = InMemoryApi()
    client = api.client()
    wanted: Document = {"type": "NodePort", "clusterIP": "10.96.0.10", "ports": [{"port": 80, "nodePort": 30080}]}
    await _create(client, "first", **wanted)
    taken = "provided IP is already allocated"
    same_address = {"clusterIP": "10.96.0.10"}
    same_port = {"type": "NodePort", "ports": wanted["ports"]}
    for asked, field, text in (
        (same_address, "spec.clusterIPs", f'Invalid value: ["10.96.0.10"]: failed to allocate IP 10.96.0.10: {taken}'),
        (same_port, "spec.ports[0].nodePort", "Invalid value: 30080: provided port is already allocated"),
    ):
        with pytest.raises(ApiStatusError) as refused:
            await _create(client, "second", **asked)
        assert [(each.field, each.message) for each in refused.value.details.causes] == [(field, text)]
    await client.delete(SERVICES, "first", "default")
    await _create(client, "second", **wanted)


@asynchronous
async def test_two_that_ask_at_once_for_the_same_do_not_both_get_it() -> None:
    client = InMemoryApi().client()
    asked = (_create(client, name, clusterIP="10.96.0.10") for name in ("one", "other"))
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in results if each is not None] == [ApiStatusError]


@asynchronous
async def test_an_update_keeps_what_it_does_not_mention_and_drops_what_the_type_has_no_longer() -> None:
    api = InMemoryApi()
    client = api.client()
    await _create(client, "web", type="LoadBalancer", externalTrafficPolicy="Local")
    before = _spec(api, "web")
    assert before["ports"][0]["nodePort"] in NODE_PORTS
    assert before["healthCheckNodePort"] in NODE_PORTS
    same = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [_PORT]}
    await client.update(SERVICES, {"metadata": {"name": "web"}, "spec": same}, "web", "default")
    assert _spec(api, "web") == before
    await client.patch(SERVICES, "web", {"spec": {"type": "ClusterIP"}}, PatchType.MERGE, "default")
    after = _spec(api, "web")
    assert after["clusterIP"] == before["clusterIP"]
    assert "nodePort" not in after["ports"][0]
    assert not after.keys() & {"healthCheckNodePort", "externalTrafficPolicy", "allocateLoadBalancerNodePorts"}


@asynchronous
async def test_the_port_for_health_checks_stays() -> None:
    """Another one is refused as a change, before anybody asks whether it is free."""
    client = InMemoryApi().client()
    await _create(client, "web", type="LoadBalancer", externalTrafficPolicy="Local")
    immutable = ("spec.healthCheckNodePort", "Forbidden: field is immutable")
    out_of_range = ("spec.healthCheckNodePort", "Invalid value: 70000: must be between 1 and 65535, inclusive")
    for port, causes in ((40, [immutable]), (70_000, [out_of_range, immutable])):
        patch = {"spec": {"healthCheckNodePort": port}}
        with pytest.raises(ApiStatusError) as refused:
            await client.patch(SERVICES, "web", patch, PatchType.MERGE, "default")
        assert [(each.field, each.message) for each in refused.value.details.causes] == causes


@asynchronous
async def test_what_cannot_be_read_takes_nothing_and_what_others_stored_is_taken() -> None:
    api = InMemoryApi()
    for name, spec in (("odd", {"clusterIP": 5}), ("old", {"clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"]})):
        api.put(SERVICES, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    client = api.client()
    with pytest.raises(ApiStatusError, match="already allocated"):
        await _create(client, "new", clusterIP="10.96.0.10")
    api.remove(SERVICES, "old", "default")
    await _create(client, "new", clusterIP="10.96.0.10")


@asynchronous
async def test_a_dry_run_takes_nothing() -> None:
    client = InMemoryApi().client()
    body = {"metadata": {"name": "web"}, "spec": {"clusterIP": "10.96.0.10", "ports": [_PORT]}}
    await client.create(SERVICES, body, "default", dry_run=True)
    await client.create(SERVICES, body, "default")


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["TCP", "UDP"])), unique=True), st.integers(0, 99))
def test_ports_differ_but_for_the_two_protocols_of_one_port(ports: list[tuple[int, str]], seed: int) -> None:
    spec: Document = {
        "type": "NodePort",
        "ports": [{"port": port, "protocol": protocol} for port, protocol in ports],
    }
    taken = {*NODE_PORTS[86:2700]}
    assert allocate(spec, taken.__contains__, frozenset(), Random(seed)) == []
    numbers = {(port["port"], port["nodePort"]) for port in spec["ports"]}
    assert len(numbers) == len({port for port, _ in ports}) == len({number for _, number in numbers})
    assert not taken & {number for _, number in numbers}


def test_a_range_in_which_nothing_is_left_is_named() -> None:
    spec: Document = {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}
    with pytest.raises(ApiError, match="failed to allocate a nodePort: range is full"):
        allocate(spec, {*NODE_PORTS}.__contains__, frozenset(), Random(1))
