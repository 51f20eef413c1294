"""What a patched object shares with the stored one is not put into the server's form a second time."""

from __future__ import annotations

from copy import deepcopy

import pytest

from koordinator.api.document import Document
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.resource import Registry, Strategy
from tests.cluster.embedded import pod


def _strategy() -> Strategy:
    resource = Registry(BUILTIN_RESOURCES).served.get(("", "v1", "pods"))
    assert resource is not None
    return resource.strategy


def _stored() -> Document:
    stored = {"apiVersion": "v1", "kind": "Pod", **pod("p", nodeSelector={"a": "b"}), "status": {"phase": "Running"}}
    _strategy().decode(stored)
    return stored


@pytest.mark.parametrize(
    "changed",
    [
        {"status": {"phase": "Failed", "podIPs": [], "startTime": "2026-01-01T00:00:00.5Z"}},
        {"spec": {"containers": [{"name": "main", "image": "other", "resources": {"limits": {"cpu": "1000m"}}}]}},
        {"metadata": {"name": "p", "labels": {"a": "b"}, "annotations": {}}},
        {"status": None},
    ],
)
def test_the_result_is_the_same(changed: Document) -> None:
    old = _stored()
    shared, alone = {**old, **changed}, deepcopy({**old, **changed})
    _strategy().decode(shared, old)
    _strategy().decode(alone)
    assert shared == alone


def test_a_shared_member_is_not_looked_at() -> None:
    old = _stored()
    old["spec"]["nodeSelector"] = {}  # would be dropped
    obj = {**old, "status": {"phase": "Failed"}}
    _strategy().decode(obj, old)
    assert obj["spec"]["nodeSelector"] == {}


def test_a_copy_is() -> None:
    old = _stored()
    old["spec"]["nodeSelector"] = {}
    obj = {**old, "spec": deepcopy(old["spec"])}
    _strategy().decode(obj, old)
    assert "nodeSelector" not in obj["spec"]
