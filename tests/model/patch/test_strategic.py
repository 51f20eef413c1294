"""Strategic merge patches without a server: what merges, and what a patch that is none says of itself.

How they compare with the real server's is tested with the embedded API, which applies the same code.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.table import Field, ObjectType, Shape, Type, named
from koordinator.model.patch.errors import PatchError
from koordinator.model.patch.merge_list import order_elements
from koordinator.model.patch.strategic import apply_strategic_patch

POD = named("io.k8s.api.core.v1.Pod")
TEXTS = st.none() | st.text("xyz", max_size=2)
PATCHES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({"labels": st.dictionaries(st.sampled_from("abc"), TEXTS)}),
        "spec": st.fixed_dictionaries({"schedulerName": TEXTS}),
    },
)


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ({"spec": {"containers": [{"image": "a"}]}}, 500, "does not contain declared merge key: name"),
        ({"spec": {"containers": ["a"]}}, 422, "cannot merge 'a' into a list of objects"),
        ({"$patch": "mend"}, 500, "unknown patch type: mend"),
        ({"spec": {"$retainKeys": "name"}}, 400, "invalid patch format of retainKeys"),
        ({"spec": {"$setElementOrder/containers": {}}}, 400, "invalid patch format of setElementOrder list"),
    ],
)
def test_what_is_wrong_is_said(patch: Document, code: int, message: str) -> None:
    with pytest.raises(PatchError, match=message) as refused:
        apply_strategic_patch({"spec": {"containers": [{"name": "b"}]}}, patch, POD)
    assert refused.value.code == code


@given(PATCHES, PATCHES)
def test_a_second_time_changes_nothing(original: Document, patch: Document) -> None:
    once = apply_strategic_patch(copied(original), patch, POD)
    assert apply_strategic_patch(copied(once), patch, POD) == once


@given(st.lists(st.integers(0, 9), unique=True), st.lists(st.integers(0, 9), unique=True))
def test_ordering_keeps_every_element_once(server: list[int], order: list[int]) -> None:
    merged = [*server, *(x for x in order if x not in server)]
    result = order_elements(merged, order, server, "")
    assert sorted(result) == sorted(merged)
    assert [x for x in result if x in order] == order


def test_a_type_that_the_table_does_not_hold_can_be_declared() -> None:
    pods = Field("pods", Type(Shape.LIST, element=Type(Shape.OBJECT, POD.name)))
    holder = ObjectType("Holder", {"pods": pods}, {})
    outer = Field("in", Type(Shape.OBJECT, "Holder", declared=holder))
    patched = apply_strategic_patch(
        {"in": {"pods": [1]}}, {"in": {"pods": [2]}}, ObjectType("Outer", {"in": outer}, {})
    )
    assert patched == {"in": {"pods": [2]}}
    assert outer.type.members is holder
