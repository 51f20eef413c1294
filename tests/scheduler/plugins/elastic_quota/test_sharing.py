"""How siblings share: the original's worked example, and what holds for any claims."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from koordinator.scheduler.plugins.elastic_quota.amounts import Claim, scaled_min, share

amounts = st.integers(0, 10**15)
claims = st.lists(
    st.builds(
        Claim,
        name=st.text("abcdef", min_size=1, max_size=3),
        request=amounts,
        floor=amounts,
        weight=amounts,
        lends=st.booleans(),
    ),
    max_size=8,
    unique_by=lambda claim: claim.name,
)


def test_what_is_left_goes_to_those_who_want_more_by_weight() -> None:
    wanted = [Claim("a", 100, 10, 1, True), Claim("b", 30, 20, 2, True), Claim("c", 3, 5, 1, True)]
    assert share(100, wanted) == {"a": 67, "b": 30, "c": 3}


def test_an_odd_unit_goes_to_the_largest_remainder_and_then_by_name() -> None:
    assert share(10, [Claim(name, 100, 0, 1, True) for name in "cab"]) == {"a": 4, "b": 3, "c": 3}


def test_who_does_not_lend_keeps_its_floor() -> None:
    assert share(10, [Claim("a", 1, 6, 1, False), Claim("b", 100, 0, 1, True)]) == {"a": 6, "b": 4}


def test_without_a_weight_nobody_gets_more_than_the_floor() -> None:
    assert share(100, [Claim("a", 50, 10, 0, True)]) == {"a": 10}


@given(st.integers(-(10**15), 10**15), claims)
def test_shares_stay_within_the_total_where_floors_do(total: int, wanted: list[Claim]) -> None:
    shares = share(total, wanted)
    granted = sum(min(claim.request, claim.floor) if claim.lends else claim.floor for claim in wanted)
    at_first = sum(claim.floor if claim.request > claim.floor or not claim.lends else claim.request for claim in wanted)
    assert sum(shares.values()) <= max(total, at_first)
    assert granted <= sum(shares.values())


@given(st.integers(0, 10**15), claims)
def test_everyone_gets_the_smaller_of_request_and_floor_and_never_more_than_the_larger(
    total: int, wanted: list[Claim]
) -> None:
    shares = share(total, wanted)
    for claim in wanted:
        assert min(claim.request, claim.floor) <= shares[claim.name] <= max(claim.request, claim.floor)


@given(st.integers(0, 10**15), claims, st.randoms(use_true_random=False))
def test_the_order_of_siblings_makes_no_difference(total: int, wanted: list[Claim], random: object) -> None:
    shuffled = list(wanted)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert share(total, shuffled) == share(total, wanted)


@given(st.integers(0, 10**15), claims)
def test_nothing_is_left_over_while_someone_with_a_weight_wants_more(total: int, wanted: list[Claim]) -> None:
    shares = share(total, wanted)
    if any(claim.weight and shares[claim.name] < claim.request for claim in wanted):
        assert sum(shares.values()) >= total


def test_mins_shrink_in_proportion_to_what_there_is() -> None:
    assert scaled_min({"cpu": 30_000}, {"cpu": 60_000}, {"cpu": 40_000}) == {"cpu": 20_000}


def test_mins_are_whole_where_there_is_enough_and_where_the_parent_does_not_know_the_resource() -> None:
    assert scaled_min({"cpu": 30, "gpu": 8}, {"cpu": 60, "gpu": 16}, {"cpu": 60}) == {"cpu": 30, "gpu": 8}


def test_nothing_is_kept_where_there_is_nothing() -> None:
    assert scaled_min({"cpu": 30}, {"cpu": 60}, {"cpu": -5}) == {"cpu": 0}
