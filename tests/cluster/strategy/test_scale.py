"""Scales are read out of objects and written back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.resource import ScalePaths
from koordinator.cluster.strategy.scale import scale_of, scaled, selector_text
from koordinator.cluster.verbs.selection import compile_selector, parse_label_selector

_CUSTOM = ScalePaths(("spec", "parts", "count"), ("status", "count"), ("status", "selector"), custom=True)
_METADATA: Document = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}

_KEYS, _VALUES = st.sampled_from("abc"), st.sampled_from("xyz")
_LISTED = st.builds(
    lambda key, operator, values: {"key": key, "operator": operator, "values": values},
    _KEYS,
    st.sampled_from(("In", "NotIn")),
    st.lists(_VALUES, min_size=1, unique=True),
)
_BARE = st.builds(
    lambda key, operator: {"key": key, "operator": operator}, _KEYS, st.sampled_from(("Exists", "DoesNotExist"))
)
_SELECTORS = st.fixed_dictionaries(
    {}, optional={"matchLabels": st.dictionaries(_KEYS, _VALUES), "matchExpressions": st.lists(_LISTED | _BARE)}
)


@given(_SELECTORS, st.dictionaries(_KEYS, _VALUES))
def test_the_text_of_a_selector_selects_the_same(selector: Document, labels: dict[str, str]) -> None:
    matches = compile_selector(selector)
    expected = matches is None or matches(labels)
    assert parse_label_selector(selector_text(selector))(labels) == expected


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (None, ""),
        ({}, ""),
        ("a=b", "a=b"),
        ({"b": "2", "a": "1"}, "a=1,b=2"),
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
    ],
)
def test_forms_of_selectors(selector: Any, text: str) -> None:
    assert selector_text(selector) == text


@given(st.integers(0, 2**31 - 1))
def test_what_is_written_is_read_again(replicas: int) -> None:
    obj = {"metadata": _METADATA, "spec": {"other": 1}}
    changed = scaled(obj, {"spec": {"replicas": replicas}}, _CUSTOM)
    assert changed["spec"] == {"other": 1, "parts": {"count": replicas}}
    assert scale_of(changed, _CUSTOM)["spec"].get("replicas", 0) == replicas
    assert obj["spec"] == {"other": 1}


def test_a_scale_shows_no_more_than_it_should() -> None:
    obj = {"metadata": _METADATA, "spec": {"parts": {"count": 2}}, "status": {"count": 1, "selector": "a=b"}}
    assert scale_of(obj, _CUSTOM) == {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"},
        "spec": {"replicas": 2},
        "status": {"replicas": 1, "selector": "a=b"},
    }


@pytest.mark.parametrize("spec", [{"parts": {"count": "two"}}, {"parts": {"count": True}}])
def test_a_count_that_is_none_is_an_error(spec: Document) -> None:
    with pytest.raises(ApiError, match="accessor error"):
        scale_of({"metadata": _METADATA, "spec": spec}, _CUSTOM)


def test_replicas_need_a_place() -> None:
    with pytest.raises(ApiError, match="value cannot be set"):
        scaled({"metadata": _METADATA, "spec": "text"}, {"spec": {"replicas": 1}}, _CUSTOM)
