"""A group is there as long as it has a member."""

from __future__ import annotations

from koordinator.base.groups import Counts, Groups


def test_a_group_goes_with_its_last_member() -> None:
    groups = Groups[str, str, int]()
    groups.put("red", "rose", 1)
    groups.put("red", "poppy", 2)
    assert groups.take("red", "rose") == 1
    assert groups == {"red": {"poppy": 2}}
    assert groups.take("red", "poppy") == 2
    assert groups == {}
    assert groups.of("red") == {}


def test_what_is_not_there_cannot_be_taken() -> None:
    groups = Groups[str, str, int]()
    groups.put("red", "rose", 1)
    assert groups.take("blue", "rose") is None
    assert groups.take("red", "lily") is None
    assert groups == {"red": {"rose": 1}}


def test_a_member_of_which_there_is_none_is_not_counted() -> None:
    counts = Counts[str, str]()
    counts.add("red", "rose", 2)
    counts.add("red", "rose", -1)
    assert counts.of("red") == {"rose": 1}
    counts.add("red", "rose", -1)
    assert counts == {}
