"""Whose child an object is, and when the writes to children are seen."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference
from koordinator.api.pod import Pod
from koordinator.base.clock import ManualClock
from koordinator.cluster.controllers.child_expectations import ChildExpectations
from koordinator.cluster.controllers.ownership import claim, usable_selector
from koordinator.cluster.controllers.pod_control import slow_start
from koordinator.model.label_selector import EVERYTHING, NOTHING, compile_selector
from tests.cluster.controllers.objects import NOW, pod, replica_set


def _of(uid: str, made: Pod, **metadata: Any) -> Pod:
    reference = OwnerReference(kind="ReplicaSet", name="web", uid=uid, controller=True)
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, owner_references=(reference,), **metadata)
    )


def test_children_are_kept_adopted_and_released() -> None:
    owner, mine, theirs, orphan = replica_set("me"), _of("me", pod("mine")), _of("you", pod("theirs")), pod("orphan")
    found = claim(owner, [mine, theirs, orphan], EVERYTHING)
    assert (found.owned, found.adopted, found.released) == ([mine], [orphan], [])
    found = claim(owner, [mine, theirs, orphan], compile_selector(LabelSelector({"app": "another"})))
    assert (found.owned, found.adopted, found.released) == ([], [], [mine])


def test_an_owner_whose_selector_cannot_be_read_keeps_what_it_has() -> None:
    unreadable = LabelSelector(match_expressions=[LabelSelectorRequirement("app", "Like", ["web"])])
    owner, mine, orphan = replica_set("me"), _of("me", pod("mine")), pod("orphan")
    found = claim(owner, [mine, orphan], usable_selector(unreadable))
    assert (found.owned, found.adopted, found.released) == ([mine], [], [])


def test_an_owner_that_is_being_deleted_leaves_all_as_it_is() -> None:
    owner = replica_set("me")
    owner = msgspec.structs.replace(owner, metadata=msgspec.structs.replace(owner.metadata, deletion_timestamp=NOW))
    orphan, mine = pod("orphan"), _of("me", pod("mine"))
    for selector in (EVERYTHING, NOTHING):
        found = claim(owner, [orphan, mine], selector)
        assert (found.adopted, found.released) == ([], [])


def test_an_object_that_is_being_deleted_is_not_adopted() -> None:
    orphan = pod("orphan")
    leaving = msgspec.structs.replace(orphan, metadata=msgspec.structs.replace(orphan.metadata, deletion_timestamp=NOW))
    assert claim(replica_set("me"), [leaving], EVERYTHING).adopted == []


@dataclass
class _Cache:
    """What expectations read of an informer."""

    resource_version: str = "5"
    objects: dict[str, Pod] = field(default_factory=dict)

    def get(self, key: str) -> Pod | None:
        return self.objects.get(key)


def _expectations(cache: _Cache, clock: ManualClock | None = None) -> ChildExpectations:
    children: Any = cache
    return ChildExpectations(children, clock or ManualClock())


def _at(version: str) -> Pod:
    return Pod(metadata=ObjectMeta(name="p", namespace="default", uid="p", resource_version=version))


@pytest.mark.parametrize(("seen", "is_satisfied"), [("6", False), ("7", True), ("8", True)])
def test_a_write_is_seen_with_its_version_or_a_later_one(seen: str, is_satisfied: bool) -> None:
    cache = _Cache()
    expectations = _expectations(cache)
    expectations.written("me", _at("7"))
    cache.resource_version = seen
    assert expectations.are_satisfied("me") is is_satisfied
    assert expectations.are_satisfied("you")


def test_a_deletion_is_seen_when_the_pod_is_gone_or_another_one_or_being_deleted() -> None:
    there = _at("5")
    leaving = msgspec.structs.replace(there, metadata=msgspec.structs.replace(there.metadata, deletion_timestamp=NOW))
    other = msgspec.structs.replace(there, metadata=msgspec.structs.replace(there.metadata, uid="other"))
    for shown, is_satisfied in (
        ({"default/p": there}, False),
        ({}, True),
        ({"default/p": leaving}, True),
        ({"default/p": other}, True),
    ):
        expectations = _expectations(_Cache(objects=dict(shown)))
        expectations.deleted("me", there)
        assert expectations.are_satisfied("me") is is_satisfied


def test_a_cache_that_stays_behind_for_minutes_is_no_longer_waited_for() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        expectations = _expectations(_Cache(), clock)
        expectations.written("me", _at("7"))
        await clock.advance(299)
        assert not expectations.are_satisfied("me")
        await clock.advance(1)
        assert expectations.are_satisfied("me")

    asyncio.run(scenario())


@pytest.mark.parametrize(("fails_at", "succeeded", "calls"), [(None, 10, 10), (0, 0, 1), (4, 6, 7), (9, 9, 10)])
def test_creates_start_slowly_and_end_with_the_batch_that_fails(
    fails_at: int | None, succeeded: int, calls: int
) -> None:
    """The batches are 1, 2, 4 and the 3 that are left."""
    made: list[int] = []

    async def create(number: int) -> None:
        made.append(number)
        if number == fails_at:
            raise ValueError(number)

    done, failure = asyncio.run(slow_start(10, create))
    assert (done, len(made), failure is None) == (succeeded, calls, fails_at is None)
