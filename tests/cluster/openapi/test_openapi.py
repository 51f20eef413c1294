from __future__ import annotations

import json
from typing import Any

from koordinator.api.document import Document
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.openapi import v2, v3, v3_index
from koordinator.cluster.resource import Resource
from koordinator.cluster.strategy.custom import CustomResourceStrategy

CRD: Document = {"spec": {"scope": "Namespaced", "versions": [{"name": "v1"}]}}
SCHEMA: Document = {
    "type": "object",
    "properties": {"spec": {"type": "object", "nullable": True, "properties": {"default": {"type": "string"}}}},
}
FOO = Resource("example.com", "v1", "foos", "Foo", True, CustomResourceStrategy(CRD, "v1"), schema=SCHEMA)
ALL = (*BUILTIN_RESOURCES, FOO)


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(_references(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(_references(item) for item in value))
    return set()


def _documents() -> list[tuple[Document, str, Document]]:
    pairs = sorted({(resource.group, resource.version) for resource in ALL})
    documents = [(d := v3(ALL, *pair), "#/components/schemas/", d["components"]["schemas"]) for pair in pairs]
    two = v2(ALL)
    return [*documents, (two, "#/definitions/", two["definitions"])]


def test_every_reference_leads_somewhere() -> None:
    for document, prefix, schemas in _documents():
        assert {reference.removeprefix(prefix) for reference in _references(document)} <= set(schemas)


def test_patch_announces_server_side_field_validation() -> None:
    """kubectl looks for this parameter on the PATCH of the kind before it validates on its own."""
    for resource in ALL:
        document = v3(ALL, resource.group, resource.version)
        patches = [
            item["patch"]
            for item in document["paths"].values()
            if "patch" in item and item["patch"]["x-kubernetes-group-version-kind"]["kind"] == resource.kind
        ]
        assert patches
        assert all("fieldValidation" in {p["name"] for p in patch["parameters"]} for patch in patches)


def test_merge_keys_are_announced() -> None:
    spec = v3(ALL, "", "v1")["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert (spec["x-kubernetes-patch-strategy"], spec["x-kubernetes-patch-merge-key"]) == ("merge", "name")


def test_index_names_each_group_version() -> None:
    paths = v3_index(ALL)["paths"]
    assert {"api/v1", "apis/apps/v1", "apis/example.com/v1"} <= set(paths)
    assert paths["api/v1"]["serverRelativeURL"].startswith("/openapi/v3/api/v1?hash=")


def test_hash_changes_with_a_custom_schema() -> None:
    other = Resource("example.com", "v1", "foos", "Foo", True, FOO.strategy, schema={"type": "object"})
    path = "apis/example.com/v1"
    assert v3_index([FOO])["paths"][path] != v3_index([other])["paths"][path]


def test_custom_schema_in_version_2_has_no_newer_keywords() -> None:
    schema = v2(ALL)["definitions"]["com.example.v1.Foo"]["properties"]["spec"]
    assert schema == {"type": "object", "properties": {"default": {"type": "string"}}}


def test_a_kind_that_may_have_any_field_lists_none_in_version_2() -> None:
    """kubectl would refuse what is not listed."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    free = Resource("example.com", "v1", "foos", "Foo", True, FOO.strategy, schema=schema)
    written = v2([free])["definitions"]["com.example.v1.Foo"]
    del written["x-kubernetes-group-version-kind"]
    assert written == {"type": "object"}


def test_the_given_schema_is_not_changed() -> None:
    before = json.dumps(SCHEMA)
    v2(ALL)
    v3(ALL, "example.com", "v1")
    assert json.dumps(SCHEMA) == before


def test_subresources_have_the_schema_of_what_they_take() -> None:
    for group, path, kind in (
        ("apps", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale", "Scale"),
        ("", "/api/v1/namespaces/{namespace}/pods/{name}/eviction", "Eviction"),
    ):
        document = v3(ALL, group, "v1")
        kinds = {operation["x-kubernetes-group-version-kind"]["kind"] for operation in document["paths"][path].values()}
        assert kinds == {kind}
        names = [name for name in document["components"]["schemas"] if name.endswith(f".{kind}")]
        assert len(names) == 1
