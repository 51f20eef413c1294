"""Values that Python takes for equal and JSON does not are never confused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from koordinator.api.document import Document
from koordinator.model.patch.difference import merge_difference
from koordinator.model.patch.merge_list import merge_objects, merge_primitives, remove_primitives
from tests.cluster.embedded import ApiClient, embedded_api

T = TypeVar("T")
THINGS = "/apis/example.com/v1/things"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ANYTHING: Document = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _definition(schema: Document) -> Document:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    return {"metadata": {"name": "things.example.com"}, "spec": spec}


def _run(scenario: Callable[[ApiClient], Awaitable[T]], schema: Document = ANYTHING) -> T:
    async def main() -> T:
        async with embedded_api() as client, client.watch(DEFINITIONS) as events:
            await client.post(DEFINITIONS, _definition(schema))
            await anext(events)
            while (await client.request("GET", THINGS)).status != 200:
                await asyncio.sleep(0)
            return await scenario(client)

    return asyncio.run(main())


def _thing(**spec: Any) -> Document:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec}


def test_an_update_that_swaps_one_and_true_is_written_and_counted() -> None:
    async def scenario(client: ApiClient) -> tuple[Document, Document]:
        before = await client.post(THINGS, _thing(a=1, b=True))
        changed = {**before, "spec": {"a": True, "b": 1}}
        return before, (await client.request("PUT", f"{THINGS}/a", changed)).body

    before, after = _run(scenario)
    assert (after["spec"]["a"] is True, after["spec"]["b"] is True) == (True, False)
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1


def test_a_test_of_a_json_patch_tells_one_from_true_and_from_a_float() -> None:
    async def scenario(client: ApiClient) -> list[int]:
        await client.post(THINGS, _thing(a=1))
        codes = []
        for value in (True, 1.0, 1):
            patch = [{"op": "test", "path": "/spec/a", "value": value}]
            response = await client.request("PATCH", f"{THINGS}/a", patch, content_type="application/json-patch+json")
            codes.append(response.status)
        return codes

    assert _run(scenario) == [422, 422, 200]


def test_a_set_and_an_enum_tell_one_from_true() -> None:
    def anything(**more: Any) -> Document:
        return {"x-kubernetes-preserve-unknown-fields": True, **more}

    properties = {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": anything()},
        "enum": anything(enum=[1]),
    }
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}

    async def scenario(client: ApiClient) -> list[int]:
        specs = ({"set": [1, True]}, {"set": [1, 1]}, {"enum": 1}, {"enum": True})
        return [(await client.request("POST", f"{THINGS}?dryRun=All", _thing(**spec))).status for spec in specs]

    assert _run(scenario, schema) == [201, 422, 201, 422]


def test_a_new_default_is_noticed_in_a_definition() -> None:
    def with_default(value: Any) -> Document:
        part = {"x-kubernetes-preserve-unknown-fields": True, "default": value}
        return {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": part}}}}

    async def scenario(client: ApiClient) -> Document:
        path = f"{DEFINITIONS}/things.example.com"
        definition = await client.get(path)
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = with_default(True)
        response: Document = (await client.request("PUT", path, definition)).body
        return response

    updated = _run(scenario, with_default(1))
    schema = updated["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["properties"]["spec"]["properties"]["a"]["default"] is True
    assert updated["metadata"]["generation"] == 2


def test_a_merge_patch_is_made_for_what_changes_between_one_and_true() -> None:
    patch = merge_difference({"a": 1, "b": [1]}, {"a": True, "b": [True]})
    assert (patch["a"] is True, patch["b"][0] is True) == (True, True)
    assert merge_difference({"a": 1}, {"a": 1}) == {}


def test_lists_of_a_strategic_patch_keep_one_and_true_apart() -> None:
    assert [type(value) for value in merge_primitives([1], [True, 1])] == [int, bool]
    assert [type(value) for value in remove_primitives([1, True], [True])] == [int]
    merged = merge_objects([{"k": 1, "v": "old"}], [{"k": True, "v": "new"}], "k", lambda old, new: {**old, **new})
    assert [item["v"] for item in merged] == ["old", "new"]
