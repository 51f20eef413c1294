from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.patch import MERGE_PATCH, STRATEGIC_PATCH, accepted_patch_types, apply_merge_patch, apply_patch
from koordinator.cluster.resource import Resource
from koordinator.cluster.strategy.custom import CustomResourceStrategy
from tests.cluster.corpus import RESOURCES

CRD: Document = {"spec": {"scope": "Namespaced", "versions": [{"name": "v1"}]}}
FOO = Resource("example.com", "v1", "foos", "Foo", True, CustomResourceStrategy(CRD, "v1"))
POD = RESOURCES["v1", "Pod"]
SCALARS = st.none() | st.integers() | st.text("xyz", max_size=3)
DOCUMENTS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), SCALARS | st.lists(SCALARS, max_size=2), max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner | SCALARS, max_size=3),
    max_leaves=8,
)


def test_custom_resources_take_no_strategic_merge_patch() -> None:
    with pytest.raises(ApiError) as refused:
        apply_patch(STRATEGIC_PATCH, {}, b"{}", FOO)
    assert refused.value.code == 415
    assert refused.value.message == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )


def test_built_in_kinds_take_all_formats() -> None:
    assert STRATEGIC_PATCH in accepted_patch_types(POD)


def test_media_type_parameters_are_ignored() -> None:
    assert apply_patch(f"{MERGE_PATCH}; charset=utf-8", {"a": 1}, b'{"b":2}', FOO) == {"a": 1, "b": 2}


@pytest.mark.parametrize("body", [b"notjson", b"", b"{"])
@pytest.mark.parametrize("media_type", accepted_patch_types(POD)[:3])
def test_malformed_json_is_a_bad_request(media_type: str, body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        apply_patch(media_type, {}, body, POD)
    assert refused.value.code == 400


@given(DOCUMENTS, DOCUMENTS)
def test_merge_patch_applied_twice_is_applied_once(original: Document, patch: Document) -> None:
    once = apply_merge_patch(original, patch)
    assert apply_merge_patch(once, patch) == once


@given(DOCUMENTS, DOCUMENTS)
def test_merge_patch_leaves_no_null_of_its_own(original: Document, patch: Document) -> None:
    merged = apply_merge_patch(original, patch)
    assert all(key not in merged for key, value in patch.items() if value is None)


@given(st.lists(st.integers(0, 5), unique=True), st.lists(st.integers(0, 5), unique=True))
def test_strategic_merge_by_key_is_idempotent(names: list[int], patched: list[int]) -> None:
    pod: Document = {"spec": {"containers": [{"name": str(n), "image": "old"} for n in names]}}
    patch = json.dumps({"spec": {"containers": [{"name": str(n), "image": "new"} for n in patched]}}).encode()
    once = apply_patch(STRATEGIC_PATCH, pod, patch, POD)
    assert apply_patch(STRATEGIC_PATCH, once, patch, POD) == once
    images: dict[str, Any] = {c["name"]: c["image"] for c in once["spec"]["containers"]}
    assert images == {str(n): "new" if n in patched else "old" for n in {*names, *patched}}
