"""Whose child an object is, and when the writes to children are seen."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement, OwnerReference
from koordinator.api.pod import Pod
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
