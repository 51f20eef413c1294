"""The merged hint is the one that comes out when every combination is looked at, and says why there is none."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.model.numa_topology.hints import (
    NUMANodeState,
    NUMATopologyHint,
    NUMATopologyPolicy,
    is_exclusive,
    mask_of,
    masks_of,
)
from koordinator.model.numa_topology.merging import Machine, Merged, best_hint, merge

Lists = Sequence[Sequence[NUMATopologyHint]]
_TWO = Machine((0, 1))


def hint(*numa_nodes: int, preferred: bool = True, score: int = 0) -> NUMATopologyHint:
    return NUMATopologyHint(mask_of(numa_nodes) if numa_nodes else None, preferred, score=score)


def by_looking_at_all(lists: Lists, machine: Machine) -> NUMATopologyHint:
    """The rule as the original has it."""
    best, best_mask = NUMATopologyHint(machine.mask), machine.mask
    for combination in product(*lists):
        masks = [each.mask for each in combination if each.mask is not None]
        mask = machine.mask
        for each in masks:
            mask &= each
        if not mask:
            continue
        preferred = all(each.preferred for each in combination) and all(each == masks[0] for each in masks)
        if machine.states is not None and not is_exclusive(mask, machine.states):
            preferred = False
        largest = max([each.bit_count() for each in masks], default=0)
        satisfied = (not masks or largest == mask.bit_count()) and not any(each.unsatisfied for each in combination)
        score = sum(each.score for each in combination if each.mask == mask)
        found = NUMATopologyHint(mask, preferred, not satisfied, score)
        narrower = (mask.bit_count(), mask) < (best_mask.bit_count(), best_mask)
        as_good = mask.bit_count() == best_mask.bit_count() and score > best.score
        if (preferred and not best.preferred) or (preferred == best.preferred and (narrower or as_good)):
            best, best_mask = found, mask
    return best


@st.composite
def lists_of_hints(draw: st.DrawFn, numa_nodes: int = 4, most: int = 3) -> Lists:
    every = list(masks_of(range(numa_nodes)))
    lists: list[list[NUMATopologyHint]] = []
    for _ in range(draw(st.integers(0, most))):
        if draw(st.integers(0, 5)) == 0:
            lists.append([draw(st.sampled_from([hint(), NUMATopologyHint(None, unsatisfied=True)]))])
            continue
        chosen = draw(st.sets(st.sampled_from(every), min_size=1, max_size=8))
        lists.append(
            [
                NUMATopologyHint(mask, draw(st.booleans()), score=draw(st.integers(0, 3)))
                for mask in every
                if mask in chosen
            ]
        )
    return lists


def states() -> st.SearchStrategy[Mapping[int, NUMANodeState] | None]:
    return st.none() | st.dictionaries(st.integers(0, 3), st.sampled_from(NUMANodeState), max_size=4)


@given(lists_of_hints(), states())
def test_the_merged_hint_is_the_best_of_all_combinations(
    lists: Lists, states: Mapping[int, NUMANodeState] | None
) -> None:
    machine = Machine((0, 1, 2, 3), states)

    assert best_hint(lists, machine) == by_looking_at_all(lists, machine)


@given(lists_of_hints(), states())
def test_with_too_many_combinations_the_mask_is_as_small(
    lists: Lists, states: Mapping[int, NUMANodeState] | None
) -> None:
    machine = Machine((0, 1, 2, 3), states)

    found, expected = best_hint(lists, machine, combinations=0), by_looking_at_all(lists, machine)

    assert found.preferred == expected.preferred
    assert found.mask is not None
    assert expected.mask is not None
    assert found.mask.bit_count() == expected.mask.bit_count()


def test_a_number_of_combinations_that_nobody_can_look_at_is_merged() -> None:
    every = [NUMATopologyHint(mask) for mask in masks_of(range(8))]
    lists = [every] * 6
    assert prod(len(hints) for hints in lists) > 10**14

    assert best_hint(lists, Machine(tuple(range(8)))).mask == mask_of([0])


@given(lists_of_hints(most=2), lists_of_hints(most=2), st.sampled_from(list(NUMATopologyPolicy)[1:]))
def test_it_does_not_matter_in_which_order_a_provider_names_its_resources(
    one: Lists, other: Lists, policy: NUMATopologyPolicy
) -> None:
    machine = Machine((0, 1, 2, 3))
    named = [
        {f"{name}{index}": hints for index, hints in enumerate(lists)} for name, lists in (("a", one), ("b", other))
    ]

    turned = [dict(reversed(hints.items())) for hints in named]

    assert merge(policy, machine, named) == merge(policy, machine, turned)


def restricted(*hints: Mapping[str, Iterable[NUMATopologyHint] | None]) -> Merged:
    provided = [{name: None if each is None else tuple(each) for name, each in one.items()} for one in hints]
    return merge(NUMATopologyPolicy.RESTRICTED, _TWO, provided)


def single(*hints: Mapping[str, Iterable[NUMATopologyHint]], machine: Machine = _TWO) -> Merged:
    provided = [{name: tuple(each) for name, each in one.items()} for one in hints]
    return merge(NUMATopologyPolicy.SINGLE_NUMA_NODE, machine, provided)


def test_a_preferred_hint_of_more_nodes_beats_a_narrower_one_that_is_not_preferred() -> None:
    found = restricted(
        {"cpu": (hint(1), hint(0, 1, preferred=False)), "memory": (hint(0), hint(1), hint(0, 1, preferred=False))}
    )

    assert found == Merged(hint(1))


def test_of_equal_hints_the_higher_score_wins() -> None:
    found = restricted({"cpu": (hint(0, score=3), hint(1, score=9)), "memory": (hint(0, score=3), hint(1, score=9))})

    assert found == Merged(hint(1, score=18))


def test_hints_without_a_common_preference_are_named() -> None:
    found = restricted({"cpu": (hint(0), hint(0, 1, preferred=False)), "memory": (hint(1),)})

    assert found.reasons == ("Unaligned NUMA Hint cause cpu prefer [01] among [01 11] & memory prefer [10] among [10]",)


def test_a_single_node_does_not_do_where_two_are_needed() -> None:
    found = single({"cpu": (hint(0, 1),)})

    assert found.reasons == ("Unaligned NUMA Hint cause cpu prefer [11] among [11]",)


def test_every_resource_that_no_node_has_is_named() -> None:
    found = restricted({"cpu": (), "memory": (hint(0),)}, {"gpu": ()})

    assert found.reasons == ("Unsatisfied NUMA cpu", "Unsatisfied NUMA gpu")


def test_a_resource_without_numa_nodes_does_not_matter() -> None:
    assert restricted({"cpu": None}, {}, {"gpu": (hint(1),)}) == Merged(hint(1))


def test_a_machine_of_one_numa_node_aligns_nothing() -> None:
    assert single({"cpu": (hint(0),)}, machine=Machine((0,))) == Merged(hint())


@pytest.mark.parametrize("hints", [{"cpu": ()}, {"cpu": (hint(0),), "memory": (hint(0, 1),)}])
def test_best_effort_takes_all_nodes_where_nothing_fits_together(
    hints: Mapping[str, tuple[NUMATopologyHint, ...]],
) -> None:
    assert merge(NUMATopologyPolicy.BEST_EFFORT, _TWO, [hints]) == Merged(hint(0, 1, preferred=False))


def test_a_node_that_must_not_be_shared_is_not_preferred() -> None:
    machine = Machine((0, 1), {0: NUMANodeState.SHARED})

    assert single({"cpu": (hint(0), hint(1))}, machine=machine) == Merged(hint(1))
