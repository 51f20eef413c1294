"""IPAddresses and ServiceCIDRs, as the real server answered in the same words."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.cluster.strategy.address_kinds import IP_ADDRESS, address_name, ip_address, service_cidr
from tests.cluster.corpus import NOW

PARENT = {"resource": "services", "namespace": "s", "name": "n"}


def _cidrs(*blocks: str) -> Document:
    return {"spec": {"cidrs": list(blocks)}}


@pytest.mark.parametrize(
    ("name", "errors"),
    [
        ("10.1.1.1", []),
        ("fe80::1", []),
        ("fe80::0001", ['must be in canonical form ("fe80::1")']),
        ("010.1.1.1", ["must not have leading 0s"]),
        ("x.y", ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]),
    ],
)
def test_an_address_is_its_own_name(name: str, errors: list[str]) -> None:
    assert address_name(name) == errors


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"parentRef": PARENT}, []),
        ({}, ["spec.parentRef"]),
        ({"parentRef": {}}, ["spec.parentRef.resource", "spec.parentRef.name"]),
        ({"parentRef": {"resource": "r", "name": "a/b"}}, ["spec.parentRef.name"]),
    ],
)
def test_an_address_belongs_to_something(spec: Document, fields: list[str]) -> None:
    assert [cause.field for cause in ip_address({"spec": spec}, None)] == fields


def test_an_address_stays_where_it_belongs() -> None:
    moved = ip_address({"spec": {"parentRef": {**PARENT, "name": "m"}}}, {"spec": {"parentRef": PARENT}})
    assert [(cause.field, "immutable" in cause.message) for cause in moved] == [("spec.parentRef", True)]


def test_what_an_address_belongs_to_is_shown() -> None:
    row = IP_ADDRESS.row({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": PARENT}}, NOW)
    assert row[:2] == ["10.0.0.1", "services/s/n"]


@pytest.mark.parametrize(
    ("obj", "old", "fields"),
    [
        (_cidrs("10.1.0.0/16"), None, []),
        (_cidrs("10.1.0.0/16", "fd00::/64"), None, []),
        (_cidrs(), None, ["spec.cidrs"]),
        (_cidrs("10.0.0.0/8", "fd00::/64", "x"), None, ["spec.cidrs"]),
        (_cidrs("10.1.0.1/16"), None, ["spec.cidrs[0]"]),
        (_cidrs("x"), None, ["spec.cidrs[0]"]),
        (_cidrs("10.1.0.0/16", "10.2.0.0/16"), None, ["spec.cidrs"]),
        (_cidrs("10.1.0.0/16", "fd00::/64"), _cidrs("10.1.0.0/16"), []),
        (_cidrs("10.2.0.0/16"), _cidrs("10.1.0.0/16"), ["spec.cidrs[0]"]),
        (_cidrs("10.1.0.0/16"), _cidrs("10.1.0.0/16", "fd00::/64"), ["spec.cidrs"]),
    ],
)
def test_blocks_of_addresses(obj: Any, old: Any, fields: list[str]) -> None:
    assert [cause.field for cause in service_cidr(obj, old)] == fields
