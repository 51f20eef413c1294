"""How large and how deep an object may become."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.json_patch import OperationError, apply_operations
from koordinator.cluster.limits import MAX_BODY, MAX_DEPTH, is_too_deep
from koordinator.cluster.verbs.update import patch
from tests.cluster.embedded import Verbs


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(("levels", "deep"), [(0, False), (MAX_DEPTH, False), (MAX_DEPTH + 1, True)])
def test_depth_counts_objects_within_each_other(levels: int, deep: bool) -> None:
    assert is_too_deep(_nested(levels)) == deep


def test_depth_counts_lists_too() -> None:
    assert not is_too_deep([_nested(MAX_DEPTH - 1)])
    assert is_too_deep([_nested(MAX_DEPTH)])


DEPLOYMENT: Document = {
    "metadata": {"name": "c"},
    "spec": {
        "selector": {"matchLabels": {"app": "a"}},
        "template": {
            "metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "main", "image": "image", "env": [{"name": "first"}]}]},
        },
    },
}


def test_an_object_that_patches_have_made_too_large_is_not_stored() -> None:
    async def main() -> tuple[ApiError, Document | None]:
        verbs = Verbs()
        await verbs.create("deployments", DEPLOYMENT, group="apps")
        target = verbs.target("deployments", "c", group="apps")
        for name in ("x", "y", "z"):
            # Annotations would be refused for their own size.
            variable = {"name": name, "value": "x" * (MAX_BODY // 3)}
            added = [{"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": variable}]
            try:
                await patch(verbs.environment, target, "application/json-patch+json", msgspec.json.encode(added))
            except ApiError as error:
                return error, verbs.get("deployments", "c", group="apps")
        raise AssertionError("nothing was refused")

    refused, stored = asyncio.run(main())
    assert (refused.code, refused.reason) == (413, "RequestEntityTooLarge")
    assert refused.message == f"Request entity too large: limit is {MAX_BODY}"
    assert stored is not None
    variables = stored["spec"]["template"]["spec"]["containers"][0]["env"]
    assert [variable["name"] for variable in variables] == ["first", "x", "y"]


def test_copies_that_double_a_document_end_before_it_is_large() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(60)]
    with pytest.raises(OperationError, match="accumulated size increase of copy is"):
        apply_operations({"a": {"text": "x" * 1000}}, doubling)


def test_a_document_that_operations_make_too_deep_is_refused() -> None:
    deeper = [{"op": "add", "path": "/a" * level, "value": {}} for level in range(1, MAX_DEPTH + 3)]
    with pytest.raises(OperationError, match=f"exceeded max depth of {MAX_DEPTH}"):
        apply_operations({}, deeper)


def test_copies_into_themselves_do_not_exhaust_the_stack() -> None:
    into = [{"op": "copy", "from": "/a", "path": f"/a{'/a' * level}"} for level in (2**power for power in range(9))]
    with pytest.raises(OperationError):
        apply_operations({"a": {}}, into * 3)
