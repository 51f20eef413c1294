"""JSON patch operations as the real server's library applies them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.cluster.json_patch import OperationError, apply_operations

_SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
_DOCUMENTS = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_size=4,
)


def _apply(document: Any, **operation: Any) -> Any:
    named = {name.rstrip("_"): value for name, value in operation.items()}
    return apply_operations(document, [named])


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": "/b", "value": 2}, {"a": [1, 2], "b": 2}),
        ({"op": "add", "path": "/a/-", "value": 3}, {"a": [1, 2, 3]}),
        ({"op": "add", "path": "/a/0", "value": 3}, {"a": [3, 1, 2]}),
        ({"op": "add", "path": "/a/2", "value": 3}, {"a": [1, 2, 3]}),
        ({"op": "add", "path": "/a/-1", "value": 3}, {"a": [1, 2, 3]}),
        ({"op": "remove", "path": "/a/0"}, {"a": [2]}),
        ({"op": "remove", "path": "/a/-1"}, {"a": [1]}),
        ({"op": "remove", "path": "/a"}, {}),
        ({"op": "replace", "path": "/a/1", "value": 9}, {"a": [1, 9]}),
        ({"op": "replace", "path": "/absent", "value": 9}, {"a": [1, 2], "absent": 9}),
        ({"op": "replace", "path": "", "value": {"new": 1}}, {"new": 1}),
        ({"op": "move", "from": "/a/0", "path": "/b"}, {"a": [2], "b": 1}),
        ({"op": "copy", "from": "/a", "path": "/b"}, {"a": [1, 2], "b": [1, 2]}),
        ({"op": "test", "path": "/a", "value": [1, 2]}, {"a": [1, 2]}),
        ({"op": "test", "path": "/absent", "value": None}, {"a": [1, 2]}),
        ({"op": "add", "path": "/x~1y~0z", "value": 1}, {"a": [1, 2], "x/y~z": 1}),
    ],
)
def test_an_operation_applies(operation: dict[str, Any], expected: Any) -> None:
    assert apply_operations({"a": [1, 2]}, [operation]) == expected


@pytest.mark.parametrize(
    ("operation", "detail"),
    [
        ({"op": "add", "value": 1}, "add operation failed to decode path: missing value"),
        ({"op": "add", "path": "", "value": 1}, 'add operation does not apply: doc is missing path: "": missing value'),
        (
            {"op": "add", "path": "/a/9", "value": 1},
            "error in add for path: '/a/9': Unable to access invalid index: 9: invalid index referenced",
        ),
        (
            {"op": "add", "path": "/a/x", "value": 1},
            "error in add for path: '/a/x': value was not a proper array index: 'x': "
            'strconv.Atoi: parsing "x": invalid syntax',
        ),
        (
            {"op": "remove", "path": "/a/9"},
            "error in remove for path: '/a/9': Unable to access invalid index: 9: invalid index referenced",
        ),
        (
            {"op": "replace", "path": "/a/9", "value": 1},
            "replace operation does not apply: doc is missing key: /a/9: missing value",
        ),
        ({"op": "replace", "path": "", "value": 1}, "replace operation value must be object or array"),
        ({"op": "test", "path": "/a", "value": [1]}, "testing value /a failed: test failed"),
        ({"op": "test", "path": "/a/0", "value": True}, "testing value /a/0 failed: test failed"),
        (
            {"op": "move", "from": "/no/such", "path": "/b"},
            "move operation does not apply: doc is missing from path: /no/such: missing value",
        ),
        (
            {"op": "copy", "from": "/a", "path": "/no/such"},
            "copy operation does not apply: doc is missing destination path: /no/such: missing value",
        ),
        ({"path": "/a"}, "Unexpected kind: unknown"),
    ],
)
def test_an_operation_that_does_not_apply_says_why(operation: dict[str, Any], detail: str) -> None:
    with pytest.raises(OperationError) as caught:
        apply_operations({"a": [1, 2]}, [operation])
    assert str(caught.value) == detail


def test_a_copy_shares_nothing_with_its_source() -> None:
    operations = [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/b/-", "value": 2}]
    assert apply_operations({"a": [1]}, operations) == {"a": [1], "b": [1, 2]}


@given(_DOCUMENTS, _SCALARS)
def test_what_was_added_can_be_tested_and_taken_away(document: dict[str, Any], value: Any) -> None:
    operations = [
        {"op": "add", "path": "/new-field", "value": value},
        {"op": "test", "path": "/new-field", "value": value},
        {"op": "remove", "path": "/new-field"},
    ]
    assert apply_operations(document, operations) == document


@given(_DOCUMENTS)
def test_the_document_that_is_given_stays_as_it_is(document: dict[str, Any]) -> None:
    before = repr(document)
    _apply(document, op="add", path="/new-field", value=1)
    assert repr(document) == before
