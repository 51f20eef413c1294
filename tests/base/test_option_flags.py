"""Options whose fields are flags: what is given, what is not, and under which heading the help text has them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

from koordinator.base.flag_types import FlagError
from koordinator.base.flags import FlagSet
from koordinator.base.option_flags import OptionFlags, duration, group, integer, number, seconds, switch, text


@dataclass(frozen=True, slots=True)
class Inner:
    interval: float = seconds("interval", 1.5, "How often.", minimum=1.0)
    keeps: timedelta = duration("keep-for", timedelta(hours=1), "For how long.")
    bytes: int = integer("max-mb", 16, "MiB.", minimum=1, unit=1 << 20)


@dataclass(frozen=True, slots=True)
class Outer:
    name: str
    inner: Inner = group("Inner", Inner)
    queries: bool = switch("disable-queries", True, "Do not query.", negated=True, under="Outer")
    verbose: bool = switch("verbose", False, "Say more.", under="Outer")
    policy: str = text("policy", "a", "Which.", allowed=("a", "b"), under="Outer")
    rate: float = number("rate", 20.0, "A second.", under="Outer")
    unflagged: int = 7


def parsed(*arguments: str, **others: int) -> Outer:
    flags = FlagSet("program", "It does.", "1")
    options = OptionFlags(Outer, {title: flags.group(title) for title in ("Outer", "Inner")}.__getitem__)
    return options.read(flags.parse(arguments), name="n", **others)


def test_what_is_not_given_is_as_the_dataclass_has_it() -> None:
    assert parsed() == Outer("n")


def test_each_flag_sets_its_option() -> None:
    given = parsed(
        *("--interval=2m", "--keep-for=1s", "--max-mb=2", "--disable-queries", "--verbose", "--policy=b", "--rate=0.5")
    )
    inner = Inner(120.0, timedelta(seconds=1), 2 << 20)
    assert given == Outer("n", inner, queries=False, verbose=True, policy="b", rate=0.5)


def test_what_the_caller_gives() -> None:
    assert parsed("--disable-queries=false", unflagged=8) == Outer("n", unflagged=8)


@pytest.mark.parametrize("argument", ["--interval=500ms", "--max-mb=0", "--policy=c", "--rate=x"])
def test_bounds_are_those_of_the_flag(argument: str) -> None:
    with pytest.raises(FlagError, match=argument.partition("=")[0]):
        parsed(argument)


def test_the_help_text_has_each_flag_under_its_heading_with_its_default() -> None:
    flags = FlagSet("program", "It does.", "1")
    OptionFlags(Outer, {title: flags.group(title) for title in ("Outer", "Inner")}.__getitem__)
    outer, _, inner = flags.help().partition("Inner flags:")
    assert "--disable-queries" in outer
    assert "(default 16)" in inner
    assert "(default 1.5s)" in inner
