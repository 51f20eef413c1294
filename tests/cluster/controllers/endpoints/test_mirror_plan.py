"""What of Endpoints becomes which slice."""

from __future__ import annotations

from typing import Any

from koordinator.api.meta import ObjectMeta
from koordinator.cluster.controllers.endpoints.mirror_plan import mirrored, plan_mirror
from koordinator.cluster.controllers.endpoints.types import (
    EndpointAddress,
    EndpointPort,
    Endpoints,
    EndpointSlice,
    EndpointSubset,
)

HTTP, DNS = EndpointPort(port=80), EndpointPort(name="dns", port=53, protocol="UDP")


def _subset(*ips: str, ports: tuple[EndpointPort, ...] = (HTTP,), unready: tuple[str, ...] = ()) -> EndpointSubset:
    addresses, others = ([EndpointAddress(ip=ip) for ip in group] for group in (ips, unready))
    return EndpointSubset(addresses=addresses, not_ready_addresses=others, ports=list(ports))


def _shown(*subsets: EndpointSubset) -> list[tuple[str, list[int], dict[str, bool | None]]]:
    return [
        (
            each.address_type,
            [port.port for port in each.ports or ()],
            {endpoint.addresses[0]: endpoint.conditions.ready for endpoint in each.endpoints},
        )
        for each in mirrored(Endpoints(subsets=list(subsets))).contents
    ]


def test_each_family_has_a_slice() -> None:
    assert _shown(_subset("10.0.0.1", "fd00::1")) == [
        ("IPv4", [80], {"10.0.0.1": True}),
        ("IPv6", [80], {"fd00::1": True}),
    ]


def test_what_offers_the_same_ports_is_one_slice_however_it_is_written() -> None:
    once = _shown(_subset("10.0.0.1", "10.0.0.2", ports=(HTTP, DNS)))
    ports = (_subset("10.0.0.1", "10.0.0.2"), _subset("10.0.0.2", "10.0.0.1", ports=(DNS,)))
    assert _shown(*ports) == once
    assert _shown(_subset("10.0.0.1", ports=(HTTP, DNS)), _subset("10.0.0.2", ports=(HTTP, DNS))) == once


def test_an_address_that_is_also_unready_is_unready() -> None:
    assert _shown(_subset("10.0.0.1", "10.0.0.2", unready=("10.0.0.1",))) == [
        ("IPv4", [80], {"10.0.0.2": True, "10.0.0.1": False})
    ]


def test_no_ports_are_ports_too() -> None:
    assert _shown(_subset("10.0.0.1", ports=())) == [("IPv4", [], {"10.0.0.1": True})]


def test_a_slice_has_a_thousand_addresses_at_most() -> None:
    found = mirrored(Endpoints(subsets=[_subset(*(f"10.0.{n // 250}.{n % 250}" for n in range(1001)))]))
    assert ([len(each.endpoints) for each in found.contents], found.skipped) == ([1000], 1)


def _slice(name: str, **content: Any) -> EndpointSlice:
    return EndpointSlice(metadata=ObjectMeta(name=name), **content)


def test_a_slice_of_other_ports_becomes_one_that_is_missing() -> None:
    wanted = mirrored(Endpoints(subsets=[_subset("10.0.0.1")])).contents
    old = _slice("old", address_type="IPv4", ports=[DNS], endpoints=[])
    other_family = _slice("six", address_type="IPv6", ports=[DNS], endpoints=[])
    plan = plan_mirror(wanted, [old, other_family])
    assert [(each.metadata.name, content) for each, content in plan.update] == [("old", wanted[0])]
    assert ([each.metadata.name for each in plan.delete], plan.create) == (["six"], [])


def test_a_slice_that_is_as_it_should_be_is_left_alone() -> None:
    wanted = mirrored(Endpoints(subsets=[_subset("10.0.0.1")])).contents
    same = [_slice(n, address_type="IPv4", ports=[HTTP], endpoints=wanted[0].endpoints) for n in ("a", "b")]
    plan = plan_mirror(wanted, same)
    assert (plan.create, plan.update, [each.metadata.name for each in plan.delete]) == ([], [], ["b"])
