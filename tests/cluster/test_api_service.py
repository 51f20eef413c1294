"""Clients in a cluster find its API by a Service."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.base.clock import ManualClock
from koordinator.cluster.api_service import publish_api
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.resource import Registry
from koordinator.cluster.service_addresses import ServiceAddresses
from koordinator.cluster.storage.indexed import MemoryStorage
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target, decode


def _environment() -> Environment:
    registry, storage = Registry(BUILTIN_RESOURCES), MemoryStorage()
    services = registry.stored("", "services")
    assert services is not None
    addresses = ServiceAddresses(storage, services, Random(1))
    return Environment(storage, registry, ManualClock(), Random(1), addresses=addresses)


def _target(environment: Environment, plural: str, name: str = "kubernetes") -> Target:
    group = "discovery.k8s.io" if plural == "endpointslices" else ""
    resource = environment.registry.stored(group, plural)
    assert resource is not None
    return Target(resource, "default", name)


def _found(environment: Environment, plural: str) -> Document:
    target = _target(environment, plural)
    stored = environment.storage.get(target.key)
    assert stored is not None
    return decode(target.resource, stored)


def _published(*addresses: tuple[str, int]) -> Environment:
    environment = _environment()

    async def main() -> None:
        for address, port in addresses:
            await publish_api(environment, address, port)

    asyncio.run(main())
    return environment


def test_it_has_the_first_address() -> None:
    spec = _found(_published(("127.0.0.1", 6443)), "services")["spec"]
    port = {"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}
    assert (spec["clusterIP"], spec["ports"]) == ("10.96.0.1", [port])


def test_another_service_may_have_that_address() -> None:
    environment = _environment()
    other = {"metadata": {"name": "other"}, "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}}

    async def main() -> None:
        await create(environment, _target(environment, "services", "other"), other, WriteOptions())
        await publish_api(environment, "127.0.0.1", 6443)

    asyncio.run(main())
    assert _found(environment, "services")["spec"]["clusterIP"] not in ("10.96.0.1", "")


@pytest.mark.parametrize(("address", "family"), [("127.0.0.1", "IPv4"), ("::1", "IPv6")])
def test_its_endpoints_are_those_of_the_server(address: str, family: str) -> None:
    environment = _published((address, 6443))
    (subset,) = _found(environment, "endpoints")["subsets"]
    found: Any = _found(environment, "endpointslices")
    assert subset["addresses"] == [{"ip": address}]
    assert (found["addressType"], found["endpoints"][0]["addresses"]) == (family, [address])


def test_a_start_on_another_port_corrects_them() -> None:
    environment = _published(("127.0.0.1", 6443), ("127.0.0.1", 6444))
    assert _found(environment, "endpoints")["subsets"][0]["ports"][0]["port"] == 6444
    assert _found(environment, "endpointslices")["ports"][0]["port"] == 6444


def test_a_start_on_the_same_port_writes_nothing() -> None:
    once, twice = _published(("127.0.0.1", 6443)), _published(("127.0.0.1", 6443), ("127.0.0.1", 6443))
    assert twice.storage.revision() == once.storage.revision()
