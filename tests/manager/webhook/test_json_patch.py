"""JSON patches: whatever two documents are, the patch turns the one into the other."""

from __future__ import annotations

import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.manager.webhook.review import make_patch

_scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-1, 1) | st.sampled_from(["", "a", "b/c", "~1"])
_documents = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["", "a", "b/c", "~0", "d"]), inner),
    max_leaves=12,
)


@given(_documents, _documents)
def test_the_patch_leads_from_one_to_the_other(old: Any, new: Any) -> None:
    patch = make_patch(old, new)
    # Compared as text: Python holds true and 1 for equal.
    assert _text(jsonpatch.apply_patch(old, patch)) == _text(new)


@given(_documents)
def test_the_same_document_needs_no_patch(document: Any) -> None:
    assert make_patch(document, json.loads(json.dumps(document))) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"a": 1}, [("add", "/a")]),
        ({"a": 1}, {}, [("remove", "/a")]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, [("replace", "/a/c")]),
        ({"koordinator.sh/qos": 1}, {"koordinator.sh/qos": 2}, [("replace", "/koordinator.sh~1qos")]),
        ([1, 2, 3], [1, 3], [("remove", "/1")]),
        ([1, 3], [1, 2, 3], [("add", "/1")]),
        ([1, 2], [1, 2, 3, 4], [("add", "/2"), ("add", "/3")]),
        ([1, 2, 3], [], [("remove", "/2"), ("remove", "/1"), ("remove", "/0")]),
        ([{"n": 1, "v": 1}, {"n": 2}], [{"n": 1, "v": 2}, {"n": 2}], [("replace", "/0/v")]),
        ({"a": 1}, {"a": True}, [("replace", "/a")]),
        ({"a": None}, {}, [("remove", "/a")]),
    ],
)
def test_only_what_differs_is_in_it(old: Any, new: Any, expected: list[tuple[str, str]]) -> None:
    assert [(operation["op"], operation["path"]) for operation in make_patch(old, new)] == expected


def _text(document: Any) -> str:
    return json.dumps(document, sort_keys=True)
