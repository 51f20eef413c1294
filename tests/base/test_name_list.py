"""The lists of controllers and plugins."""

from __future__ import annotations

import pytest

from koordinator.base.name_list import is_enabled, unknown_names


@pytest.mark.parametrize(
    ("wanted", "enabled"),
    [
        (["nodeslo"], True),
        (["nodemetric"], False),
        (["*"], True),
        (["*", "-nodeslo"], False),
        (["-nodeslo", "*"], False),
        (["-nodemetric", "*"], True),
        (["nodeslo", "-nodeslo"], True),
        (["-nodeslo", "nodeslo"], False),
        ([], False),
    ],
)
def test_the_first_entry_that_names_it_decides(wanted: list[str], enabled: bool) -> None:
    assert is_enabled("nodeslo", wanted) is enabled


def test_an_entry_that_names_nothing_is_said_with_what_may_have_been_meant() -> None:
    assert unknown_names(["*", "-nodesol", "nodemetric"], ("nodemetric", "nodeslo")) == [
        "'-nodesol' names nothing: did you mean nodeslo?"
    ]
    assert unknown_names(["zzz"], ("nodemetric", "nodeslo")) == ["'zzz' names nothing: known are nodemetric, nodeslo"]
