"""What ``kubectl koord …`` completes at TAB."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from koordinator.cli.plugin_completion import completed

NAMES = {"nodes": ["node-1", "node-2"], "pods": ["default/web", "shop/api"], "quotas": ["team-a"]}


def names(listing: str) -> Sequence[str]:
    return NAMES.get(listing, ())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["exp"], ["explain"]),
        (["explain", "qu"], ["quota"]),
        (["explain", "node", "node-"], ["node-1", "node-2"]),
        (["explain", "quota", ""], ["team-a"]),
        (["drain", ""], ["node-1", "node-2"]),
        (["migrate", "s"], ["shop/api"]),
        (["get", "pend"], ["pending"]),
        (["get", "pods", "-o", "y"], ["yaml"]),
        (["what-if", "add-n"], ["add-node"]),
        (["get", "pods", "--sel"], ["--selector"]),
        (["explain", "rebal"], ["rebalance"]),
    ],
)
def test_commands_kinds_names_flags_and_values_are_completed(words: list[str], expected: list[str]) -> None:
    *found, directive = completed(words, names)
    assert found == expected
    assert directive == ":4"


def test_a_file_is_left_to_the_shell() -> None:
    assert completed(["what-if", "apply", "-f", ""], names) == [":0"]
