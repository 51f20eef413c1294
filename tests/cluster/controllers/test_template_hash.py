"""The hash that ends the name of a ReplicaSet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.cluster.controllers.deployment.template_hash import template_hash

_VALUES = st.dictionaries(st.text(), st.one_of(st.text(), st.integers(0, 9)))


@given(template=_VALUES, collisions=st.none() | st.integers(0, 9))
def test_it_is_a_part_of_a_name_without_vowels(template: dict[str, object], collisions: int | None) -> None:
    digest = template_hash(template, collisions)
    assert 1 <= len(digest) <= 10
    assert set(digest) <= set("bcdfghjklmnpqrstvwxz2456789")


@given(template=_VALUES)
def test_the_order_of_fields_is_no_matter(template: dict[str, object]) -> None:
    assert template_hash(dict(reversed(template.items())), None) == template_hash(template, None)


@pytest.mark.parametrize("collisions", [0, 1])
def test_a_collision_changes_it(collisions: int) -> None:
    assert template_hash({"a": "b"}, collisions) != template_hash({"a": "b"}, None)
