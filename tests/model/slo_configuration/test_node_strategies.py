"""The first strategy whose selector matches is the node's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement
from koordinator.model.label_selector import SelectorError
from koordinator.model.slo_configuration.node_strategies import NodeStrategy, StrategySet, compile_node_selector

_KEYS = st.sampled_from(["a", "b", "example.com/c"])
_VALUES = st.sampled_from(["", "x", "y"])
_EXPRESSIONS = st.one_of(
    st.builds(
        LabelSelectorRequirement,
        key=_KEYS,
        operator=st.sampled_from(["In", "NotIn"]),
        values=st.lists(_VALUES, min_size=1, max_size=2),
    ),
    st.builds(LabelSelectorRequirement, key=_KEYS, operator=st.sampled_from(["Exists", "DoesNotExist"])),
)
_SELECTORS = st.none() | st.builds(
    LabelSelector,
    match_labels=st.dictionaries(_KEYS, _VALUES, max_size=2),
    match_expressions=st.lists(_EXPRESSIONS, max_size=2),
)


def _set(*selectors: LabelSelector | None) -> StrategySet[int]:
    nodes = [NodeStrategy(str(i), compile_node_selector(each), i) for i, each in enumerate(selectors)]
    return StrategySet(-1, tuple(nodes))


def test_nothing_that_matches_leaves_the_strategy_of_the_cluster() -> None:
    assert _set(None, LabelSelector(match_labels={"a": "x"})).for_labels({"a": "y"}) == -1


def test_an_empty_selector_matches_every_node() -> None:
    assert _set(LabelSelector()).for_labels({}) == 0


def test_a_strategy_whose_selector_could_not_be_read_is_skipped() -> None:
    strategies = StrategySet(
        -1, (NodeStrategy("broken", None, 0), NodeStrategy("all", compile_node_selector(LabelSelector()), 1))
    )
    assert strategies.for_labels({}) == 1


@given(st.lists(_SELECTORS, max_size=6), st.dictionaries(_KEYS, _VALUES))
def test_the_index_finds_what_looking_through_the_list_finds(
    selectors: list[LabelSelector | None], labels: dict[str, str]
) -> None:
    expected = [i for i, each in enumerate(selectors) if compile_node_selector(each).matches(labels)]
    assert [node.strategy for node in _set(*selectors).matching(labels)] == expected


@pytest.mark.parametrize(
    "selector",
    [
        LabelSelector(match_labels={"a b": "x"}),
        LabelSelector(match_labels={"": "x"}),
        LabelSelector(match_labels={"a/b/c": "x"}),
        LabelSelector(match_labels={"A.com/b": "x"}),
        LabelSelector(match_labels={"a" * 64: "x"}),
        LabelSelector(match_labels={"a": "x y"}),
        LabelSelector(match_labels={"a": "x" * 64}),
        LabelSelector(match_labels={"a": "-x"}),
        LabelSelector(match_expressions=[LabelSelectorRequirement(key="a", operator="out", values=["x"])]),
        LabelSelector(match_expressions=[LabelSelectorRequirement(key="a", operator="In", values=["x", "y z"])]),
    ],
)
def test_what_no_label_can_be_makes_a_selector_unusable(selector: LabelSelector) -> None:
    with pytest.raises(SelectorError):
        compile_node_selector(selector)
