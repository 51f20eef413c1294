from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import decode
from koordinator.cluster.verbs.update import patch, update
from tests.cluster.embedded import Verbs, config_map, pod

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def _put(verbs: Verbs, obj: Document, name: str = "c", *, dry_run: bool = False) -> Document:
    target = verbs.target("configmaps", name)
    return decode(target.resource, asyncio.run(update(verbs.environment, target, obj, WriteOptions(dry_run=dry_run))))


def _created(verbs: Verbs, **metadata: object) -> Document:
    return asyncio.run(verbs.create("configmaps", config_map("c", {"a": "1"}, **metadata)))


def _refusal(action: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as refused:
        action()
    return refused.value


def test_update_with_the_current_version_replaces() -> None:
    verbs = Verbs()
    current = _created(verbs)
    assert _put(verbs, {**current, "data": {"a": "2"}})["metadata"]["resourceVersion"] == "2"


def test_update_with_an_old_version_conflicts() -> None:
    verbs = Verbs()
    old = _created(verbs)
    _put(verbs, {**old, "data": {"a": "2"}})
    refused = _refusal(lambda: _put(verbs, {**old, "data": {"a": "3"}}))
    assert refused.message == (
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


def test_update_without_a_version_replaces_the_newest() -> None:
    verbs = Verbs()
    _created(verbs)
    assert _put(verbs, config_map("c", {"b": "2"}))["data"] == {"b": "2"}


def test_update_keeps_what_the_server_set() -> None:
    verbs = Verbs()
    before = _created(verbs)["metadata"]
    after = _put(verbs, config_map("c", {"b": "2"}))["metadata"]
    assert [after[name] for name in ("uid", "creationTimestamp")] == [before["uid"], before["creationTimestamp"]]


def test_update_that_changes_nothing_keeps_the_version() -> None:
    verbs = Verbs()
    current = _created(verbs)
    reordered = dict(reversed(current.items()))
    assert _put(verbs, reordered)["metadata"]["resourceVersion"] == "1"


def test_update_of_another_uid_conflicts() -> None:
    verbs = Verbs()
    _created(verbs)
    assert _refusal(lambda: _put(verbs, config_map("c", uid="other"))).code == 409


def test_update_of_another_name_is_refused() -> None:
    verbs = Verbs()
    _created(verbs)
    message = "the name of the object (d) does not match the name on the URL (c)"
    assert _refusal(lambda: _put(verbs, config_map("d"))).message == message


def test_update_of_a_missing_object_is_not_found() -> None:
    assert _refusal(lambda: _put(Verbs(), config_map("c"))).code == 404


def test_dry_run_stores_nothing() -> None:
    verbs = Verbs()
    _created(verbs)
    assert _put(verbs, config_map("c", {"b": "2"}), dry_run=True)["data"] == {"b": "2"}
    assert verbs.storage.revision() == 1


def test_the_last_finalizer_to_go_takes_a_deleted_object_along() -> None:
    verbs = Verbs()
    _created(verbs, finalizers=["x.io/y"])

    async def main() -> None:
        target = verbs.target("configmaps", "c")
        stored = verbs.storage.get(target.key)
        assert stored is not None
        marks = b'{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":0,'
        await verbs.storage.update(target.key, marks + stored.value[len(b'{"metadata":{') :], stored.revision)
        await patch(verbs.environment, target, MERGE, b'{"metadata":{"finalizers":null}}')

    asyncio.run(main())
    assert verbs.get("configmaps", "c") is None


def test_concurrent_patches_all_take_effect() -> None:
    verbs = Verbs()
    _created(verbs)
    target = verbs.target("configmaps", "c")

    async def main() -> None:
        changes: list[Awaitable[object]] = [
            patch(verbs.environment, target, MERGE, msgspec.json.encode({"data": {str(n): "x"}})) for n in range(10)
        ]
        await asyncio.gather(*changes)

    asyncio.run(main())
    found = verbs.get("configmaps", "c")
    assert found is not None
    assert len(found["data"]) == 11


def test_patch_with_an_old_version_conflicts() -> None:
    verbs = Verbs()
    _created(verbs)
    body = b'{"metadata":{"resourceVersion":"77"},"data":{"b":"2"}}'
    target = verbs.target("configmaps", "c")
    assert _refusal(lambda: asyncio.run(patch(verbs.environment, target, MERGE, body))).reason == "Conflict"


def test_status_subresource_leaves_the_spec_alone() -> None:
    verbs = Verbs()
    asyncio.run(verbs.create("pods", pod("p")))
    target = verbs.target("pods", "p", subresource="status")
    body = b'{"spec":{"nodeName":"n"},"status":{"phase":"Running"}}'
    changed = decode(target.resource, asyncio.run(patch(verbs.environment, target, MERGE, body)))
    assert (changed["spec"].get("nodeName"), changed["status"]["phase"]) == (None, "Running")


def test_generation_counts_changes_of_the_spec_alone() -> None:
    verbs = Verbs()
    deployment = {
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]},
        },
    }
    asyncio.run(verbs.create("deployments", deployment, group="apps"))
    target = verbs.target("deployments", "d", group="apps")

    def generation(body: bytes) -> int:
        changed = decode(target.resource, asyncio.run(patch(verbs.environment, target, MERGE, body)))
        return int(changed["metadata"]["generation"])

    assert generation(b'{"metadata":{"labels":{"x":"y"}}}') == 1
    assert generation(b'{"spec":{"replicas":3}}') == 2


def _patched(body: Document | list[Document], mode: str, media_type: str = MERGE) -> tuple[Document, list[str]]:
    verbs = Verbs()
    asyncio.run(verbs.create("pods", pod("p")))
    target, options = verbs.target("pods", "p"), WriteOptions(field_validation=mode)
    stored = asyncio.run(patch(verbs.environment, target, media_type, msgspec.json.encode(body), options))
    return decode(target.resource, stored), options.warnings


MISTYPED = {"spec": {"containers": [{"name": "main", "image": "new", "imagee": "x"}]}}


@pytest.mark.parametrize("media_type", [MERGE, STRATEGIC])
def test_a_mistyped_field_of_a_patch_is_warned_of_and_dropped(media_type: str) -> None:
    obj, warnings = _patched(MISTYPED, "Warn", media_type)
    container = obj["spec"]["containers"][0]
    assert (container["image"], "imagee" in container, warnings) == (
        "new",
        False,
        ['unknown field "spec.containers[0].imagee"'],
    )


def test_a_mistyped_field_of_a_json_patch_is_warned_of() -> None:
    operation = {"op": "add", "path": "/spec/nodeselector", "value": {}}
    obj, warnings = _patched([operation], "Warn", "application/json-patch+json")
    assert (obj["spec"].get("nodeselector"), warnings) == (None, ['unknown field "spec.nodeselector"'])


@pytest.mark.parametrize("media_type", [MERGE, STRATEGIC])
def test_a_mistyped_field_of_a_strict_patch_is_refused(media_type: str) -> None:
    refused = _refusal(lambda: _patched(MISTYPED, "Strict", media_type))
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert refused.message.endswith('": strict decoding error: unknown field "spec.containers[0].imagee"')


def test_a_mistyped_field_is_ignored_when_requested_for() -> None:
    obj, warnings = _patched(MISTYPED, "Ignore")
    assert ("imagee" in obj["spec"]["containers"][0], warnings) == (False, [])


def test_directives_and_deletions_of_a_strategic_patch_are_no_unknown_fields() -> None:
    body = {"spec": {"$setElementOrder/containers": [{"name": "main"}], "nodeselector": None}}
    assert _patched(body, "Strict", STRATEGIC)[1] == []


def test_unknown_fields_that_were_there_before_are_nobodys_fault() -> None:
    verbs = Verbs()
    obj = config_map("c", {"a": "1"})
    asyncio.run(verbs.create("configmaps", {**obj, "later": {"x": 1}}))
    target, options = verbs.target("configmaps", "c"), WriteOptions(field_validation="Strict")
    body = b'[{"op":"add","path":"/data/b","value":"2"}]'
    stored = asyncio.run(patch(verbs.environment, target, "application/json-patch+json", body, options))
    assert decode(target.resource, stored)["later"] == {"x": 1}


@pytest.mark.parametrize("there", [True, False])
def test_server_side_apply_is_refused_with_what_to_do_instead(there: bool) -> None:
    verbs = Verbs()
    if there:
        _created(verbs)
    target = verbs.target("configmaps", "c")
    refused = _refusal(lambda: asyncio.run(patch(verbs.environment, target, "application/apply-patch+yaml", b"{}")))
    assert (refused.code, "without --server-side" in refused.message) == (415, True)
