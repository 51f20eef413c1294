"""Two selectors overlap when a node that has only what one requests is matched by both."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.model.label_selector import compile_selector
from koordinator.model.slo_configuration.selector_overlap import label_demands, shared_node

_KEYS = ("a", "b")
_VALUES = ("", "x", "y", "x0")
_EXPRESSIONS = st.one_of(
    st.builds(
        LabelSelectorRequirement,
        key=st.sampled_from(_KEYS),
        operator=st.sampled_from(["In", "NotIn"]),
        values=st.lists(st.sampled_from(_VALUES), min_size=1, max_size=3),
    ),
    st.builds(
        LabelSelectorRequirement, key=st.sampled_from(_KEYS), operator=st.sampled_from(["Exists", "DoesNotExist"])
    ),
)
_SELECTORS = st.builds(
    LabelSelector,
    match_labels=st.dictionaries(st.sampled_from(_KEYS), st.sampled_from(_VALUES)),
    match_expressions=st.lists(_EXPRESSIONS, max_size=3),
)


def _needed_labels(selector: LabelSelector) -> set[str]:
    """The labels that a node must have to be selected, whatever their values."""
    requested = {each.key for each in selector.match_expressions if each.operator in ("In", "Exists")}
    return requested | set(selector.match_labels)


def _nodes(keys: set[str]) -> list[dict[str, str]]:
    names = sorted(keys)
    return [dict(zip(names, values, strict=True)) for values in product([*_VALUES, "z"], repeat=len(names))]


@given(_SELECTORS, _SELECTORS)
def test_it_is_found_exactly_when_a_search_through_all_nodes_finds_it(one: LabelSelector, other: LabelSelector) -> None:
    matched = [
        node
        for node in _nodes(_needed_labels(one))
        if compile_selector(one).matches(node) and compile_selector(other).matches(node)
    ]
    assert (shared_node(label_demands(one), label_demands(other)) is not None) == bool(matched)


@given(_SELECTORS, _SELECTORS)
def test_the_node_that_it_names_is_matched_by_both(one: LabelSelector, other: LabelSelector) -> None:
    node = shared_node(label_demands(one), label_demands(other))
    if node is not None:
        assert compile_selector(one).matches(node)
        assert compile_selector(other).matches(node)


def test_selectors_of_different_labels_do_not_overlap() -> None:
    selectors = [LabelSelector(match_labels={key: "x"}) for key in _KEYS]
    assert not any(shared_node(label_demands(a), label_demands(b)) for a, b in combinations(selectors, 2))
