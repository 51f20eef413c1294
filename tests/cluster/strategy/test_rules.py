"""Tables of paths and rules find every value that a path names, and say where it is."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.cluster.strategy.rules import Rules, one_of, positive, required


@pytest.mark.parametrize(
    ("path", "document", "fields"),
    [
        ("a.b", {}, []),
        ("a.b", {"a": {}}, ["a.b"]),
        ("a.b", {"a": {"b": 1}}, []),
        ("a[].b", {"a": [{"b": 1}, {}]}, ["a[1].b"]),
        ("a[].b[]", {"a": [{"b": [0, 1]}, {"b": None}]}, ["a[0].b[0]"]),
    ],
)
def test_a_row_is_checked_wherever_its_holder_is(path: str, document: dict[str, Any], fields: list[str]) -> None:
    assert [cause.field for cause in Rules((path, required())).check(document)] == fields


def test_causes_come_in_the_order_of_the_rows() -> None:
    rules = Rules(("b", positive), ("a", one_of("x")))
    assert [cause.field for cause in rules.check({"a": "y", "b": 0})] == ["b", "a"]
