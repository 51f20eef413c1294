"""Server-side apply as a verb: bodies in YAML, repeated keys, other writers in between, and what is not tracked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.storage.interface import KeyExists, Stored
from koordinator.cluster.verbs.apply import apply
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.subresources import patch_scale
from koordinator.cluster.verbs.target import Target, decode
from tests.cluster.embedded import Verbs, config_map

_YAML = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  a: 'one'\n"
_TWICE = _YAML + b"  a: 'two'\n"
_APPLY = "application/apply-patch+yaml"


def _verbs(*, tracks_fields: bool = True) -> Verbs:
    verbs = Verbs()
    verbs.environment = replace(verbs.environment, tracks_fields=tracks_fields)
    return verbs


def _applied(verbs: Verbs, body: bytes, name: str = "c", **options: Any) -> tuple[Document, bool]:
    target = verbs.target("configmaps", name)
    given = WriteOptions(field_manager="me", **options)
    stored, created = asyncio.run(apply(verbs.environment, target, body, given))
    return decode(target.resource, stored), created


def _refused(verbs: Verbs, body: bytes, name: str = "c", **options: Any) -> ApiError:
    with pytest.raises(ApiError) as refused:
        _applied(verbs, body, name, **options)
    return refused.value


def test_what_is_not_there_is_created_and_then_changed() -> None:
    verbs = _verbs()
    made, created = _applied(verbs, _YAML)
    assert (made["data"], created) == ({"a": "one"}, True)
    changed, again = _applied(verbs, _YAML.replace(b"one", b"two"))
    assert (changed["data"], again, changed["metadata"]["uid"]) == ({"a": "two"}, False, made["metadata"]["uid"])


def test_a_dry_run_stores_nothing() -> None:
    verbs = _verbs()
    assert _applied(verbs, _YAML, dry_run=True)[1]
    assert verbs.get("configmaps", "c") is None


def test_a_key_that_is_there_twice_is_warned_of() -> None:
    warnings: list[str] = []
    made, _ = _applied(_verbs(), _TWICE, warnings=warnings)
    assert made["data"] == {"a": "two"}
    assert warnings == [
        'error converting YAML to JSON: yaml: unmarshal errors:\n  line 6: key "a" already set in map'
    ]  # fmt: skip


def test_a_key_that_is_there_twice_is_refused_in_a_strict_request() -> None:
    refused = _refused(_verbs(), _TWICE, field_validation="Strict")
    assert (refused.code, 'line 6: key "a" already set in map' in refused.message) == (400, True)


def test_nothing_is_said_of_it_where_nobody_wants_to_know() -> None:
    warnings: list[str] = []
    _applied(_verbs(), _TWICE, field_validation="Ignore", warnings=warnings)
    assert warnings == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "invalid object type: /, Kind="),
        (b"[1]", "cannot unmarshal array into Go value of type map[string]interface {}"),
        (b"a: [", "error decoding YAML: error converting YAML to JSON: yaml: line"),
        (b"[" * 1000, "error decoding YAML"),
        (b'{"a":' * 1000 + b"1" + b"}" * 1000, "exceeded max depth"),
    ],
)
def test_bodies_that_are_no_object(body: bytes, message: str) -> None:
    refused = _refused(_verbs(), body)
    assert (refused.code, message in refused.message) == (400, True)


def test_who_creates_it_meanwhile_is_merged_with() -> None:
    """The object is not there when it is looked for, and is when it is to be stored."""
    verbs = _verbs()
    create = verbs.storage.create
    raced: list[str] = []

    async def racing(key: str, value: bytes) -> Stored:
        if key.endswith("/c") and not raced:
            raced.append(key)
            await verbs.create("configmaps", config_map("c", {"b": "theirs"}))
            raise KeyExists(key)
        return await create(key, value)

    verbs.storage.create = racing  # type: ignore[method-assign]  # the other writer
    changed, created = _applied(verbs, _YAML)
    assert (changed["data"], created) == ({"a": "one", "b": "theirs"}, False)


def test_a_server_that_tracks_no_fields_takes_no_configuration() -> None:
    verbs = _verbs(tracks_fields=False)
    assert _refused(verbs, _YAML).code == 415
    made = asyncio.run(verbs.create("configmaps", config_map("c", managedFields=[{"manager": "x"}])))
    assert "managedFields" not in made["metadata"]


def test_the_status_of_what_is_not_there_is_not_created() -> None:
    verbs = _verbs()
    target = verbs.target("pods", "p", subresource="status")
    body = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"status":{"phase":"Running"}}'
    with pytest.raises(ApiError) as refused:
        asyncio.run(apply(verbs.environment, target, body, WriteOptions(field_manager="me")))
    assert refused.value.code == 404


def test_an_applied_scale() -> None:
    verbs = _verbs()
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    asyncio.run(verbs.create("deployments", {"metadata": {"name": "d"}, "spec": spec}, group="apps"))
    target = Target(verbs.target("deployments", group="apps").resource, "default", "d", "scale")
    body = b'{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d"},"spec":{"replicas":3}}'
    options = WriteOptions(field_manager="me", force=True)
    asyncio.run(patch_scale(verbs.environment, target, _APPLY, body, options))
    scaled = verbs.get("deployments", "d", group="apps")
    assert scaled is not None
    assert scaled["spec"]["replicas"] == 3
    managers = {(entry["manager"], entry.get("subresource")): entry for entry in scaled["metadata"]["managedFields"]}
    assert managers["me", "scale"]["fieldsV1"] == {"f:spec": {"f:replicas": {}}}


def test_an_object_is_stored_without_managers_where_these_make_it_too_large() -> None:
    verbs = _verbs()
    data = {f"key-{index:06}": "" for index in range(120_000)}
    made = asyncio.run(verbs.create("configmaps", config_map("c", data)))
    assert (len(made["data"]), "managedFields" in made["metadata"]) == (120_000, False)
