"""Masks, their text, and exclusive NUMA nodes."""

import pytest

from koordinator.model.numa_topology.hints import (
    NUMANodeState,
    format_mask,
    is_exclusive,
    mask_of,
    masks_of,
    numa_nodes_of,
)


@pytest.mark.parametrize(
    ("numa_nodes", "text"),
    [
        ((), "00"),
        ((0,), "01"),
        ((1,), "10"),
        ((0, 1), "11"),
        ((2,), "100"),
        ((0, 2), "0101"),
        ((3,), "1000"),
        ((4,), "10000"),
        ((0, 4), "010001"),
        ((62,), "1" + "0" * 62),
        ((63,), "1" + "0" * 63),
    ],
)
def test_masks_are_printed_as_the_original_prints_them(numa_nodes: tuple[int, ...], text: str) -> None:
    assert format_mask(mask_of(numa_nodes)) == text


def test_every_set_of_numa_nodes_is_named_once_small_ones_first() -> None:
    sets = [numa_nodes_of(mask) for mask in masks_of((0, 2, 5))]

    assert sets == [(0,), (2,), (5,), (0, 2), (0, 5), (2, 5), (0, 2, 5)]


@pytest.mark.parametrize(
    ("numa_nodes", "expected"),
    [((0,), True), ((1,), True), ((3,), False), ((0, 3), True), ((1, 3), False), ((7,), True), ((0, 7), True)],
)
def test_pods_of_one_and_of_several_numa_nodes_keep_apart(numa_nodes: tuple[int, ...], expected: bool) -> None:
    states = {0: NUMANodeState.IDLE, 1: NUMANodeState.SINGLE, 3: NUMANodeState.SHARED}

    assert is_exclusive(mask_of(numa_nodes), states) is expected
