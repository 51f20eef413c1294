"""Label selectors match as the API server's do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.model.label_selector import (
    EVERYTHING,
    NOTHING,
    SelectorError,
    compile_selector,
    parse_selector,
    required_labels,
)

_KEYS = st.sampled_from(["a", "b", "c"])
_VALUES = st.sampled_from(["", "x", "y"])
_LABELS = st.dictionaries(_KEYS, _VALUES)


def _expression(key: str, operator: str, *values: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator=operator, values=list(values))


_EXPRESSIONS = st.one_of(
    st.builds(
        lambda key, operator, values: _expression(key, operator, *values),
        _KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(_VALUES, min_size=1, max_size=3),
    ),
    st.builds(_expression, _KEYS, st.sampled_from(["Exists", "DoesNotExist"])),
)
_SELECTORS = st.builds(LabelSelector, match_labels=_LABELS, match_expressions=st.lists(_EXPRESSIONS, max_size=3))


@pytest.mark.parametrize(
    ("operator", "values", "labels", "expected"),
    [
        ("In", ("x", "y"), {"a": "x"}, True),
        ("In", ("x", "y"), {"a": "z"}, False),
        ("In", ("x", "y"), {}, False),
        ("NotIn", ("x",), {"a": "x"}, False),
        ("NotIn", ("x",), {"a": "y"}, True),
        ("NotIn", ("x",), {}, True),
        ("Exists", (), {"a": ""}, True),
        ("Exists", (), {}, False),
        ("DoesNotExist", (), {"a": ""}, False),
        ("DoesNotExist", (), {"b": "x"}, True),
    ],
)
def test_operators(operator: str, values: tuple[str, ...], labels: dict[str, str], expected: bool) -> None:
    selector = LabelSelector(match_expressions=[_expression("a", operator, *values)])
    assert compile_selector(selector).matches(labels) is expected


@pytest.mark.parametrize(
    ("operator", "values"),
    [("", ()), ("Gt", ("1",)), ("in", ("x",)), ("In", ()), ("NotIn", ()), ("Exists", ("x",)), ("DoesNotExist", ("x",))],
)
def test_what_cannot_be_used_is_an_error(operator: str, values: tuple[str, ...]) -> None:
    with pytest.raises(SelectorError):
        compile_selector(LabelSelector(match_expressions=[_expression("a", operator, *values)]))


@given(_LABELS)
def test_an_empty_selector_matches_everything_and_an_absent_one_nothing(labels: dict[str, str]) -> None:
    assert compile_selector(LabelSelector()).matches(labels)
    assert not compile_selector(None).matches(labels)


def test_only_an_empty_selector_is_empty() -> None:
    assert EVERYTHING.empty
    assert not NOTHING.empty
    assert not compile_selector(LabelSelector(match_labels={"a": "x"})).empty


def test_equalities_are_match_labels_and_single_values() -> None:
    selector = LabelSelector(
        match_labels={"a": "x"}, match_expressions=[_expression("b", "In", "y"), _expression("c", "In", "x", "y")]
    )
    assert required_labels(selector) == {"a": "x", "b": "y"}
    assert required_labels(None) == {}


@given(_SELECTORS, _LABELS)
def test_what_matches_has_the_required_labels(selector: LabelSelector, labels: dict[str, str]) -> None:
    compiled = compile_selector(selector)
    if compiled.matches(labels):
        assert compiled.required.items() <= labels.items()


@given(_SELECTORS, _SELECTORS, _LABELS)
def test_both_is_the_intersection(left: LabelSelector, right: LabelSelector, labels: dict[str, str]) -> None:
    one, other = compile_selector(left), compile_selector(right)
    assert one.also(other).matches(labels) == (one.matches(labels) and other.matches(labels))


@given(_SELECTORS, _LABELS, _LABELS)
def test_further_labels_narrow_a_selector(
    selector: LabelSelector, more: dict[str, str], labels: dict[str, str]
) -> None:
    compiled = compile_selector(selector)
    assert compiled.with_labels(more).matches(labels) == (compiled.matches(labels) and more.items() <= labels.items())


def test_nothing_stays_nothing_with_further_labels() -> None:
    assert compile_selector(None).with_labels({"a": "x"}) == NOTHING


def test_selectors_that_request_the_same_are_equal() -> None:
    one = LabelSelector(match_labels={"a": "x"}, match_expressions=[_expression("b", "In", "y", "x")])
    other = LabelSelector(match_expressions=[_expression("b", "In", "x", "y"), _expression("a", "In", "x")])
    assert compile_selector(one) == compile_selector(other)
    assert hash(compile_selector(one)) == hash(compile_selector(other))


@given(_SELECTORS, _SELECTORS)
def test_keys_are_equal_when_selectors_are(left: LabelSelector, right: LabelSelector) -> None:
    one, other = compile_selector(left), compile_selector(right)
    assert (one.key == other.key) == (one == other)


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True),
        ("a=x", {"a": "x"}, True),
        ("a==x", {"a": "y"}, False),
        ("a!=x", {}, True),
        ("a in (x, y)", {"a": "y"}, True),
        ("a notin (x,y)", {"a": "y"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a=x, b", {"a": "x"}, False),
        ("in in (in)", {"in": "in"}, True),
        ("kubernetes.io/os=linux,!b", {"kubernetes.io/os": "linux"}, True),
    ],
)
def test_selectors_as_command_lines_write_them(text: str, labels: dict[str, str], matches: bool) -> None:
    assert parse_selector(text).matches(labels) is matches


@pytest.mark.parametrize("text", ["a b", "a in x", "!a=x", "=x", "a=(x)", "a,,b"])
def test_texts_that_are_no_selectors(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_selector(text)
