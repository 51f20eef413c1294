from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.verbs.target import decode
from koordinator.cluster.verbs.update import update
from tests.cluster.certificate_requests import CERTIFICATE, request_spec
from tests.cluster.embedded import Verbs

ADMISSION = "admissionregistration.k8s.io"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
PARAMETER = {"name": "n", "namespace": "s", "parameterNotFoundAction": "Deny"}


def _create(plural: str, group: str, obj: Document, name: str = "r") -> Document:
    return asyncio.run(Verbs().create(plural, {"metadata": {"name": name}, **obj}, group=group))


def _row(plural: str, group: str, obj: Document, name: str = "r") -> list[Any]:
    """Without the name."""
    verbs = Verbs()
    created = asyncio.run(verbs.create(plural, {"metadata": {"name": name}, **obj}, group=group))
    row = verbs.target(plural, group=group).resource.strategy.row(created, verbs.clock.now())
    return row[1:]


def test_a_policy_matches_by_equivalent_kinds_unless_it_says_otherwise() -> None:
    spec = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "true"}]}
    created = _create("validatingadmissionpolicies", ADMISSION, {"spec": spec})
    assert created["spec"]["failurePolicy"] == "Fail"
    assert created["spec"]["matchConstraints"] == {
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "resourceRules": [{**RULE, "scope": "*"}],
    }


@pytest.mark.parametrize(
    ("plural", "group", "obj", "cells"),
    [
        ("runtimeclasses", "node.k8s.io", {"handler": "runc"}, ["runc"]),
        ("ingressclasses", "networking.k8s.io", {"spec": {"controller": "a/b"}}, ["a/b", "<none>"]),
        (
            "ingressclasses",
            "networking.k8s.io",
            {"spec": {"controller": "a/b", "parameters": {"apiGroup": "g", "kind": "K", "name": "n"}}},
            ["a/b", "K.g/n"],
        ),
        (
            "validatingadmissionpolicies",
            ADMISSION,
            {"spec": {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "true"}]}},
            [1, "<unset>"],
        ),
        (
            "validatingadmissionpolicybindings",
            ADMISSION,
            {"spec": {"policyName": "p", "paramRef": PARAMETER, "validationActions": ["Deny"]}},
            ["p", "s/n"],
        ),
        ("volumeattributesclasses", "storage.k8s.io", {"driverName": "d", "parameters": {"a": "b"}}, ["d"]),
        ("servicecidrs", "networking.k8s.io", {"spec": {"cidrs": ["10.0.0.0/8"]}}, ["10.0.0.0/8"]),
    ],
)
def test_row(plural: str, group: str, obj: Document, cells: list[Any]) -> None:
    name = "10.0.0.1" if plural == "ipaddresses" else "r"
    assert _row(plural, group, obj, name)[: len(cells)] == cells


def test_a_registered_api_shows_its_service() -> None:
    spec = {"group": "g.io", "version": "v1", "service": {"name": "s", "namespace": "n"}}
    row = _row("apiservices", "apiregistration.k8s.io", {"spec": spec}, "v1.g.io")
    assert row[:2] == ["n/s", "Unknown"]


def test_a_registered_api_is_named_for_its_version() -> None:
    with pytest.raises(ApiError, match=r"v1\.g\.io"):
        _create("apiservices", "apiregistration.k8s.io", {"spec": {"group": "g.io", "version": "v1"}}, "other")


def test_a_runtime_class_keeps_its_handler() -> None:
    async def main() -> None:
        verbs = Verbs()
        created = await verbs.create("runtimeclasses", {"metadata": {"name": "r"}, "handler": "a"}, group="node.k8s.io")
        target = verbs.target("runtimeclasses", "r", group="node.k8s.io")
        await update(verbs.environment, target, {**created, "handler": "b"})

    with pytest.raises(ApiError, match="field is immutable"):
        asyncio.run(main())


REQUEST = {**request_spec(), "username": "somebody"}


async def _change(verbs: Verbs, subresource: str, **status: Any) -> Document:
    plural, group = "certificatesigningrequests", "certificates.k8s.io"
    target = verbs.target(plural, "c", group=group, subresource=subresource)
    current = verbs.get(plural, "c", group=group)
    assert current is not None
    return decode(target.resource, await update(verbs.environment, target, {**current, "status": status}))


async def _requested(verbs: Verbs) -> Document:
    obj = {"metadata": {"name": "c"}, "spec": dict(REQUEST)}
    return await verbs.create("certificatesigningrequests", obj, group="certificates.k8s.io")


def test_the_server_says_who_requests_a_certificate() -> None:
    assert asyncio.run(_requested(Verbs()))["spec"]["username"] == "admin"


def test_an_approval_changes_conditions_alone() -> None:
    async def main() -> Document:
        verbs = Verbs()
        await _requested(verbs)
        await _change(verbs, "status", certificate=CERTIFICATE)
        conditions = [{"type": "Approved", "status": "True"}]
        return await _change(verbs, "approval", certificate="eQ==", conditions=conditions)

    status = asyncio.run(main())["status"]
    assert status["certificate"] == CERTIFICATE
    assert [(c["type"], bool(c["lastTransitionTime"])) for c in status["conditions"]] == [("Approved", True)]


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({}, "Pending"),
        ({"conditions": [{"type": "Denied", "status": "True"}]}, "Denied"),
        ({"conditions": [{"type": "Approved", "status": "True"}], "certificate": "eA=="}, "Approved,Issued"),
    ],
)
def test_a_request_shows_what_became_of_it(status: Document, shown: str) -> None:
    verbs = Verbs()
    requested = asyncio.run(_requested(verbs))
    strategy = verbs.target("certificatesigningrequests", group="certificates.k8s.io").resource.strategy
    row = strategy.row({**requested, "status": status}, verbs.clock.now())
    assert row[2:] == ["example.com/s", "admin", "<none>", shown]
