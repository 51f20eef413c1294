"""A controller waits until its cache shows what it has written, but not for ever."""

from __future__ import annotations

import asyncio

from koordinator.api.meta import Object, ObjectMeta
from koordinator.base.clock import ManualClock
from koordinator.kube.expectations import Expectations


def at_version(version: str) -> Object:
    return Object(metadata=ObjectMeta(name="a", resource_version=version))


def test_nothing_is_awaited_of_what_was_never_written() -> None:
    assert Expectations(ManualClock()).are_satisfied("a", None)


def test_an_absent_object_is_awaited_after_its_creation() -> None:
    expectations = Expectations(ManualClock())
    expectations.expect("a", at_version("7"))
    assert not expectations.are_satisfied("a", None)


def test_an_older_version_is_awaited_no_longer_once_the_written_one_has_come() -> None:
    expectations = Expectations(ManualClock())
    expectations.expect("a", at_version("7"))
    assert not expectations.are_satisfied("a", at_version("6"))
    assert expectations.are_satisfied("a", at_version("7"))
    # Deleted since: that it is absent now is news.
    assert expectations.are_satisfied("a", None)


def test_what_others_wrote_since_counts_as_seen() -> None:
    expectations = Expectations(ManualClock())
    expectations.expect("a", at_version("7"))
    assert expectations.are_satisfied("a", at_version("9"))


def test_a_cache_that_does_not_catch_up_is_believed_after_ten_seconds() -> None:
    clock = ManualClock()
    expectations = Expectations(clock)
    expectations.expect("a", at_version("7"))
    asyncio.run(clock.advance(10))
    assert expectations.are_satisfied("a", None)


def test_a_deletion_ends_the_wait() -> None:
    expectations = Expectations(ManualClock())
    expectations.expect("a", at_version("7"))
    expectations.forget("a")
    assert expectations.are_satisfied("a", None)
