"""A controller waits until its cache shows what it has written, but not for ever."""

from __future__ import annotations

import asyncio

from koordinator.api.meta import Object, ObjectMeta
from koordinator.base.clock import ManualClock
from koordinator.manager.own_writes import OwnWrites


def at_version(version: str) -> Object:
    return Object(metadata=ObjectMeta(name="a", resource_version=version))


def test_nothing_is_awaited_of_what_was_never_written() -> None:
    assert not OwnWrites(ManualClock()).are_ahead("a", None)


def test_an_absent_object_is_awaited_after_its_creation() -> None:
    writes = OwnWrites(ManualClock())
    writes.wrote("a", at_version("7"))
    assert writes.are_ahead("a", None)


def test_an_older_version_is_awaited_no_longer_once_the_written_one_has_come() -> None:
    writes = OwnWrites(ManualClock())
    writes.wrote("a", at_version("7"))
    assert writes.are_ahead("a", at_version("6"))
    assert not writes.are_ahead("a", at_version("7"))
    # Deleted since: that it is absent now is news.
    assert not writes.are_ahead("a", None)


def test_what_others_wrote_since_counts_as_seen() -> None:
    writes = OwnWrites(ManualClock())
    writes.wrote("a", at_version("7"))
    assert not writes.are_ahead("a", at_version("9"))


def test_a_cache_that_does_not_catch_up_is_believed_after_ten_seconds() -> None:
    clock = ManualClock()
    writes = OwnWrites(clock)
    writes.wrote("a", at_version("7"))
    asyncio.run(clock.advance(10))
    assert not writes.are_ahead("a", None)


def test_a_deletion_ends_the_wait() -> None:
    writes = OwnWrites(ManualClock())
    writes.wrote("a", at_version("7"))
    writes.forget("a")
    assert not writes.are_ahead("a", None)
