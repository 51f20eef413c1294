"""The word that was meant."""

from __future__ import annotations

import pytest

from koordinator.base.spelling import did_you_mean, meant


@pytest.mark.parametrize(
    ("word", "near"), [("staus", "status"), ("STATUS", "status"), ("ls", "LS"), ("zzz", ""), ("", "")]
)
def test_the_nearest_word_in_any_case(word: str, near: str) -> None:
    assert meant(word, ["status", "explain", "LS"]) == near


def test_without_a_near_word_nothing_is_said() -> None:
    assert did_you_mean("zzz", ["status"]) == ""
    assert did_you_mean("staus", ["status"]) == "; did you mean status?"
