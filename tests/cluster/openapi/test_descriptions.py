from __future__ import annotations

import pytest

from koordinator.api.kubernetes_types.table import named
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.openapi import descriptions, v2, v3

_LOOKED_UP = ("Pod", "PodSpec", "Container", "NodeSpec", "NodeStatus", "ResourceRequirements", "Toleration")


@pytest.mark.parametrize("name", descriptions())
def test_a_text_is_about_a_field_that_there_is(name: str) -> None:
    assert descriptions()[name].keys() - {"", *named(name).fields} == set()


@pytest.mark.parametrize("name", _LOOKED_UP)
def test_what_people_look_up_is_explained(name: str) -> None:
    texts = descriptions()[f"io.k8s.api.core.v1.{name}"]
    fields = named(f"io.k8s.api.core.v1.{name}").fields.keys() - {"metadata", "apiVersion", "kind"}
    assert texts[""]
    assert len(fields & texts.keys()) >= min(len(fields), 4)


def test_a_field_of_another_type_has_its_own_text() -> None:
    schemas = v3(BUILTIN_RESOURCES, "", "v1")["components"]["schemas"]
    affinity = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["affinity"]
    assert affinity["description"].startswith("Further rules about which nodes")
    assert schemas["io.k8s.api.core.v1.Affinity"]["description"].startswith("Which nodes, and which pods")


def test_a_kind_is_explained_in_both_versions() -> None:
    three = v3(BUILTIN_RESOURCES, "", "v1")["components"]["schemas"]["io.k8s.api.core.v1.Pod"]
    assert v2(BUILTIN_RESOURCES)["definitions"]["io.k8s.api.core.v1.Pod"]["description"] == three["description"]
    assert three["properties"]["metadata"]["description"]
    assert three["properties"]["kind"]["description"]
