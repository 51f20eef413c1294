"""Sums and comparisons of amounts by resource."""

from __future__ import annotations

from koordinator.api.quantity import Quantity
from koordinator.model.quota_tree.amounts import added, exact, fits, larger, less, negative


def test_sums_have_the_names_of_all() -> None:
    assert added({"a": 1}, {"a": 2, "b": 3}) == {"a": 3, "b": 3}
    assert less({"a": 1, "b": 5}, {"b": 3, "c": 2}) == {"a": 1, "b": 2, "c": -2}


def test_a_name_that_one_side_lacks_does_not_count_as_zero_for_the_larger() -> None:
    assert larger({"a": -1, "b": 1}, {"b": 2, "c": 3}) == {"a": -1, "b": 2, "c": 3}


def test_what_is_not_given_at_all_does_not_fit() -> None:
    assert fits({}, {})
    assert fits({"a": 0}, {})
    assert fits({"a": 1}, {"a": 1, "b": 1})
    assert not fits({"a": 1, "b": 1}, {"a": 1})
    assert not fits({"a": 2}, {"a": 1})


def test_exact_amounts_are_finer_than_what_is_stored() -> None:
    assert exact({"cpu": Quantity.parse("1n")}) == {"cpu": 1}


def test_amounts_below_zero_are_named_in_order() -> None:
    given = {"b": Quantity.parse("-1"), "c": Quantity.parse("0"), "a": Quantity.parse("-1m")}
    assert negative(given) == ["a", "b"]
