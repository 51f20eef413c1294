"""Schemas at work where a recorded answer does not reach: several versions, changed definitions, rules, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from koordinator.api.document import Document, copied
from koordinator.cluster.custom_resources import CustomResources
from koordinator.cluster.strategy.custom_resource_definition import CustomResourceDefinitionStrategy
from koordinator.cluster.structural_schema.definition_check import definition_causes, definition_warnings
from koordinator.cluster.structural_schema.stored_form import StoredForm
from koordinator.cluster.verbs.update import patch
from tests.cluster.embedded import ApiClient, Verbs, embedded_api

T = TypeVar("T")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.io/{}/namespaces/default/things"
MANIFESTS = sorted((Path(__file__).parents[3] / "config" / "crd").glob("*.yaml"))
MERGE = "application/merge-patch+json"


def _version(name: str, *, storage: bool = False, **fields: Document) -> Document:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}


def _definition(*versions: Document) -> Document:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.io"},
        "spec": {
            "group": "example.io",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": list(versions),
        },
    }


def _thing(version: str, **spec: Any) -> Document:
    return {"apiVersion": f"example.io/{version}", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec}


def _run(scenario: Callable[[ApiClient], Awaitable[T]], *versions: Document) -> T:
    async def main() -> T:
        async with embedded_api() as client:
            if versions:
                await client.post(DEFINITIONS, _definition(*versions))
            return await scenario(client)

    return asyncio.run(main())


TEXT: Document = {"type": "string"}
TWO = (
    _version("v1", storage=True, a=TEXT, b={"type": "string", "default": "stored"}),
    _version("v2", a=TEXT, c={"type": "string", "default": "shown"}),
)


def test_versions_with_schemas_of_their_own_keep_what_both_know() -> None:
    async def scenario(client: ApiClient) -> Any:
        created = await client.post(THINGS.format("v2"), _thing("v2", a="x", c="y"))
        first = await client.get(THINGS.format("v1") + "/t")
        second = await client.get(THINGS.format("v2") + "/t")
        return [found["spec"] for found in (created, first, second)]

    assert _run(scenario, *TWO) == [{"a": "x"}, {"a": "x", "b": "stored"}, {"a": "x"}]


async def _defined(verbs: Verbs) -> CustomResources:
    await verbs.create("customresourcedefinitions", _definition(TWO[0]), group="apiextensions.k8s.io")
    return CustomResources(verbs.environment)


def _since(verbs: Verbs) -> int | None:
    served = verbs.environment.registry.stored["example.io", "things"]
    assert served is not None
    assert isinstance(served.current, StoredForm)
    return served.current.since


async def _followed(custom_resources: CustomResources) -> None:
    async for _ in custom_resources.watch():
        pass


def test_a_label_of_the_definition_does_not_make_its_objects_old() -> None:
    verbs = Verbs()

    async def scenario() -> tuple[int | None, int | None]:
        custom_resources = await _defined(verbs)
        async with asyncio.TaskGroup() as group:
            custom_resources.load()
            group.create_task(_followed(custom_resources))
            before, generation = _since(verbs), verbs.environment.registry.generation
            target = verbs.target("customresourcedefinitions", "things.example.io", group="apiextensions.k8s.io")
            label = b'{"metadata":{"labels":{"a":"b"}}}'
            await patch(verbs.environment, target, MERGE, label)
            while verbs.environment.registry.generation == generation:
                await asyncio.sleep(0)
            await verbs.storage.close()
        return before, _since(verbs)

    before, after = asyncio.run(scenario())
    assert before == after


def test_objects_that_were_there_at_the_start_are_refreshed() -> None:
    verbs = Verbs()

    async def scenario() -> Document | None:
        custom_resources = await _defined(verbs)
        value = b'{"metadata":{"name":"t"},"spec":{"a":"x","unknown":1}}'
        await verbs.storage.create("/example.io/things/default/t", value)
        custom_resources.load()
        return verbs.get("things", "t", group="example.io")

    found = asyncio.run(scenario())
    assert found is not None
    assert found["spec"] == {"a": "x", "b": "stored"}


def test_a_definition_of_an_earlier_release_can_be_changed_elsewhere() -> None:
    """Only a schema that is new is checked."""
    old = {**_definition(_version("v1", storage=True, a={})), "status": {"storedVersions": ["v1"]}}
    new = copied(old)
    new["spec"]["names"]["shortNames"] = ["th"]
    strategy = CustomResourceDefinitionStrategy()
    assert (strategy.check(new, old), len(strategy.check(new, None))) == ([], 1)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_our_own_definitions_are_in_order(manifest: Path) -> None:
    for version in yaml.safe_load(manifest.read_text())["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        status = "status" in (version.get("subresources") or {})
        assert definition_causes(schema, "schema", status=status) + definition_warnings(schema) == []
