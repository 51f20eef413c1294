from __future__ import annotations

import asyncio
import re

import pytest

from koordinator.api.document import Document
from koordinator.cluster.admission.plugins import admission_chain
from koordinator.cluster.errors import ApiError
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import WriteOptions
from tests.cluster.embedded import Verbs, config_map, pod


def _refusal(verbs: Verbs, plural: str, obj: Document) -> ApiError:
    with pytest.raises(ApiError) as refused:
        asyncio.run(verbs.create(plural, obj))
    return refused.value


def test_the_server_sets_identity_and_time() -> None:
    created = asyncio.run(Verbs().create("pods", pod("p")))
    metadata = created["metadata"]
    assert re.fullmatch(r"[0-9a-f-]{36}", metadata["uid"])
    assert (metadata["creationTimestamp"], metadata["resourceVersion"]) == ("2026-01-01T00:00:00Z", "1")


def test_generated_names_are_cut_and_differ() -> None:
    verbs = Verbs()

    async def main() -> set[str]:
        made = [await verbs.create("configmaps", config_map("", generateName="x" * 70)) for _ in range(5)]
        return {obj["metadata"]["name"] for obj in made}

    names = asyncio.run(main())
    assert [len(name) for name in names] == [63] * 5


def test_a_taken_generated_name_is_drawn_anew() -> None:
    first, second = Verbs(), Verbs()

    async def main() -> tuple[str, str]:
        name = (await first.create("configmaps", config_map("", generateName="x-")))["metadata"]["name"]
        second.environment.random.seed(1)
        await second.create("configmaps", config_map(name))
        second.environment.random.seed(1)
        other = (await second.create("configmaps", config_map("", generateName="x-")))["metadata"]["name"]
        return name, other

    name, other = asyncio.run(main())
    assert other != name


def test_a_taken_name_is_a_conflict() -> None:
    verbs = Verbs()
    asyncio.run(verbs.create("pods", pod("p")))
    refused = _refusal(verbs, "pods", pod("p"))
    assert (refused.code, refused.reason, refused.message) == (409, "AlreadyExists", 'pods "p" already exists')


def test_a_resource_version_is_refused() -> None:
    obj = config_map("c", resourceVersion="7")
    assert _refusal(Verbs(), "configmaps", obj).message == "resourceVersion should not be set on objects to be created"


def test_another_namespace_than_the_urls_is_refused() -> None:
    assert _refusal(Verbs(), "configmaps", config_map("c", namespace="other")).code == 400


def test_another_kind_than_the_urls_is_refused() -> None:
    refused = _refusal(Verbs(), "configmaps", {"kind": "Secret", **config_map("c")})
    assert refused.message == (
        'Secret in version "v1" cannot be handled as a ConfigMap: '
        "converting (v1.Secret) to (core.ConfigMap): unknown conversion"
    )


def test_an_invalid_object_lists_its_causes() -> None:
    refused = _refusal(Verbs(), "configmaps", config_map("UPPER"))
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.status()["details"]["causes"][0]["field"] == "metadata.name"


def test_a_dry_run_stores_nothing() -> None:
    verbs = Verbs()
    stored = asyncio.run(create(verbs.environment, verbs.target("pods"), pod("p"), WriteOptions(dry_run=True)))
    assert (stored.revision, verbs.storage.revision()) == (0, 0)


def _with_lifecycle(verbs: Verbs) -> Environment:
    environment = verbs.environment
    return Environment(
        environment.storage, environment.registry, environment.clock, environment.random, admission_chain()
    )


def test_the_namespace_must_exist() -> None:
    verbs = Verbs()
    with pytest.raises(ApiError) as refused:
        asyncio.run(create(_with_lifecycle(verbs), verbs.target("pods"), pod("p")))
    assert (refused.value.code, refused.value.message) == (404, 'namespaces "default" not found')


def test_a_namespace_that_is_going_takes_nothing_new() -> None:
    verbs = Verbs()

    async def main() -> None:
        await verbs.create("namespaces", {"metadata": {"name": "default"}})
        target = verbs.target("namespaces", "default")
        stored = verbs.storage.get(target.key)
        assert stored is not None
        going = stored.value.replace(b'"name"', b'"deletionTimestamp":"2026-01-01T00:00:00Z","name"', 1)
        await verbs.storage.update(target.key, going, stored.revision)
        await create(_with_lifecycle(verbs), verbs.target("pods"), pod("p"))

    with pytest.raises(ApiError) as refused:
        asyncio.run(main())
    assert refused.value.status()["details"]["causes"][0]["reason"] == "NamespaceTerminating"
