from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.document import copied, same

SCALARS = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from((0.0, 1.0, 2.5)) | st.sampled_from(("", "1"))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0, False),
        (1, 1.0),
        ({"a": 1, "b": True}, {"a": True, "b": 1}),
        ([[1]], [[True]]),
        ({"a": 1}, {"a": 1, "b": None}),
    ],
)
def test_what_is_different_in_json_is_not_the_same(one: Any, other: Any) -> None:
    assert not same(one, other)
    assert not same(other, one)


def test_the_order_of_fields_does_not_matter() -> None:
    assert same({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1})


@given(VALUES, VALUES)
def test_same_is_equality_of_texts(one: Any, other: Any) -> None:
    texts = [msgspec.json.encode(value, order="sorted") for value in (one, other)]
    assert same(one, other) == (texts[0] == texts[1])
    assert same(one, copied(one))
