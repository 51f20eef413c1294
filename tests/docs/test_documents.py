"""Every document that a page shows is read by who it is written for: applied to an API server, or decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import pytest

from koordinator.api.manifests import custom_resource_definitions
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from tests.cluster.embedded import ApiClient, embedded_api
from tests.docs.documents import UnreadableError, Written, documents, objects, problems
from tests.docs.pages import ROOT, Block, pages
from tests.yaml_documents import yaml_documents

FEWEST: Final = 40
"""Documents that pages show; fewer would mean that they are not found."""
MOST_NOT_READ: Final = 6
BLOCKS: Final = {f"{page.name}:{block.line}": block for page in pages() for block in page.blocks if not block.is_shell}
EXAMPLES: Final = {
    str(path.relative_to(ROOT)): [Written(value, path.read_text()) for value in yaml_documents(path.read_text())]
    for path in sorted((ROOT / "docs/examples").rglob("*.yaml"))
    # What configures a plugin is read where that is installed: a page installs it and runs the file.
    if not (path.parent / "pyproject.toml").exists()
}
READ: Final = {
    **{where: found for where, block in BLOCKS.items() if not block.not_run and (found := documents(block))},
    **EXAMPLES,
}


@pytest.fixture(scope="module")
def refusals() -> Mapping[str, list[str]]:
    """What an API server says of the objects of each block."""
    return asyncio.run(_refusals())


async def _refusals() -> Mapping[str, list[str]]:
    async with embedded_api() as client:
        for definition in custom_resource_definitions():
            await client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        for priority in yaml_documents((ROOT / "config/priority-classes.yaml").read_text()):
            await client.post("/apis/scheduling.k8s.io/v1/priorityclasses", priority)
        for namespace in ("shop", "team-a", "koordinator-system"):
            await client.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        return {
            where: [text for one in found if (text := await _refusal(client, one))] for where, found in READ.items()
        }


async def _refusal(client: ApiClient, written: Written) -> str:
    said = ""
    for document in objects(written):
        response = await client.request("POST", f"{_path(document)}?dryRun=All&fieldValidation=Strict", document)
        if response.status == 201:
            return ""
        said = response.body.get("message", f"{response.status}")
    return said


def _path(document: Mapping[str, Any]) -> str:
    """Where the object is created; that of no kind where nobody serves it."""
    group, _, version = document["apiVersion"].rpartition("/")
    plural, is_namespaced = _plurals().get((group, document["kind"]), ("nothing", False))
    prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
    namespace = f"/namespaces/{document['metadata'].get('namespace', 'default')}" if is_namespaced else ""
    return f"{prefix}{namespace}/{plural}"


def _plurals() -> Mapping[tuple[str, str], tuple[str, bool]]:
    built_in = {(each.group, each.kind): (each.plural, each.namespaced) for each in BUILTIN_RESOURCES}
    specs = [definition["spec"] for definition in custom_resource_definitions()]
    custom = {
        (spec["group"], spec["names"]["kind"]): (spec["names"]["plural"], spec["scope"] == "Namespaced")
        for spec in specs
    }
    return {**built_in, **custom}


@pytest.mark.parametrize("where", READ)
def test_the_document_is_read(where: str, refusals: Mapping[str, list[str]]) -> None:
    assert [problem for one in READ[where] for problem in problems(one)] == []
    assert refusals[where] == []


def test_most_documents_are_found_and_read() -> None:
    assert len(READ) >= FEWEST
    assert sum(bool(block.not_run and documents(block)) for block in BLOCKS.values()) <= MOST_NOT_READ


def read(text: str) -> list[str]:
    return [problem for one in documents(Block(1, "yaml", text)) for problem in problems(one)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pluginConfig: [{name: LowNodeLoad, args: {lowThreshold: {cpu: 1}}}]", "lowThresholds"),
        ("plugins: {filter: {enabled: [{name: Reservatoin}]}}", "Reservation"),
        ("colocation-config: '{\"enabled\": true}'", "enable"),
        ("metadata: {annotations: {koordinator.sh/nothing: a}}", "no program reads"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {koordinator.sh/qosClass: be}}", "did you mean BE"),
        ("koordlet: {feature: a}", "the chart has no value koordlet.feature"),
    ],
)
def test_a_mistake_is_found(text: str, said: str) -> None:
    assert said in " ".join(read(text))


def test_a_form_that_nobody_reads_is_an_error() -> None:
    with pytest.raises(UnreadableError, match="surprise"):
        read("surprise: 1")


def test_sentences_and_drawings_are_no_documents() -> None:
    for text in ("koord: there is no pod", "a  b\nc  d", "Warning  FailedScheduling  binding rejected: no"):
        assert documents(Block(1, "", text)) == []
