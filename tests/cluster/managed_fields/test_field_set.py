"""Sets of field paths: the algebra of plain sets of tuples, and the form of FieldsV1."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from koordinator.cluster.managed_fields.field_set import (
    FieldSet,
    MalformedFields,
    decoded,
    difference,
    encoded,
    has,
    intersection,
    of_fields,
    of_paths,
    paths,
    recursive_difference,
    union,
)
from tests.cluster.managed_fields.fields import PATHS, sets


def _plain(fields: FieldSet) -> set[tuple[str, ...]]:
    return set(paths(fields))


@given(sets(), sets())
def test_union(one: FieldSet, other: FieldSet) -> None:
    assert _plain(union(one, other)) == _plain(one) | _plain(other)
    assert union(one, other) == union(other, one)


@given(sets(), sets())
def test_intersection(one: FieldSet, other: FieldSet) -> None:
    assert _plain(intersection(one, other)) == _plain(one) & _plain(other)


@given(sets(), sets())
def test_difference(one: FieldSet, other: FieldSet) -> None:
    assert _plain(difference(one, other)) == _plain(one) - _plain(other)


@given(sets(), sets())
def test_recursive_difference_takes_what_is_below(one: FieldSet, other: FieldSet) -> None:
    taken = _plain(other)
    kept = {path for path in _plain(one) if not any(path[: len(each)] == each for each in taken)}
    assert _plain(recursive_difference(one, other)) == kept


@given(sets(), sets())
def test_parts_make_the_whole(one: FieldSet, other: FieldSet) -> None:
    assert union(difference(one, other), intersection(one, other)) == one


@given(sets())
def test_what_is_written_is_read(fields: FieldSet) -> None:
    assert decoded(encoded(fields)) == fields


@given(sets(), PATHS)
def test_members(fields: FieldSet, path: tuple[str, ...]) -> None:
    assert has(fields, path) == (path in _plain(fields))


@given(sets())
def test_nothing_empty_is_left(fields: FieldSet) -> None:
    assert difference(fields, fields) == {}
    assert of_paths(*paths(fields)) == fields


def test_a_field_and_what_is_below_it_are_two_things() -> None:
    assert of_fields("a", "a.b") == {"f:a": {".": {}, "f:b": {}}}
    assert of_fields("a.b") == {"f:a": {"f:b": {}}}


def test_paths_are_in_the_order_of_the_real_server() -> None:
    fields = of_paths(
        ("v:2",), ('k:{"p":9}',), ("f:b",), ('k:{"p":10}',), ("i:3",), ("f:a", "f:z"), ("f:a",), ('v:"1"',)
    )
    assert list(paths(fields)) == [
        ("f:a",), ("f:b",), ('k:{"p":9}',), ('k:{"p":10}',), ("v:2",), ('v:"1"',), ("i:3",), ("f:a", "f:z"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"k:{ \"b\" :1,\"a\":2}": {}}, {'k:{"a":2,"b":1}': {}}),
        ({"f:a": {".": {}}}, {"f:a": {}}),
        ({"x:unknown": {}, "f:a": {}}, {"f:a": {}}),
        ({"v:\"<\"": {}}, {'v:"\\u003c"': {}}),
        ({"i:03": {}}, {"i:3": {}}),
    ],
)  # fmt: skip
def test_spellings_become_one(written: dict[str, Any], read: FieldSet) -> None:
    assert decoded(written) == read


@pytest.mark.parametrize(
    "written", [[], {"a": {}}, {"": {}}, {"f:a": 1}, {"k:{": {}}, {"k:1": {}}, {"i:x": {}}, {"v:": {}}]
)
def test_malformed_fields_are_refused(written: Any) -> None:
    with pytest.raises(MalformedFields):
        decoded(written)
