"""What ``koord explain gang`` is told about gangs in each state."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from koordinator.api.codec import to_document
from koordinator.api.pod import Pod, PodStatus
from koordinator.scheduler.plugins.coscheduling.documents import explain_gang
from koordinator.scheduler.plugins.coscheduling.gang import Member, MemberState
from koordinator.scheduler.plugins.coscheduling.gang_cache import GangCache
from tests.scheduler.plugins.coscheduling.gang_fakes import labelled, member, pod_group


def explained(cache: GangCache, name: str = "g", finished: Collection[Pod] = ()) -> dict[str, Any]:
    def node_of(of: Member) -> str:
        return "n1" if of.state is MemberState.WAITING else ""

    document: dict[str, Any] = to_document(explain_gang(cache, cache.gangs[f"default/{name}"], node_of, finished))
    return document


def gang_of(*pods: Any, bound: int = 0) -> GangCache:
    cache = GangCache()
    for number, pod in enumerate(pods):
        cache.set_pod(pod, "n1" if number < bound else "")
    return cache


def test_an_incomplete_gang_says_how_many_pods_are_missing() -> None:
    found = explained(gang_of(member("g", 0, 3), member("g", 1, 3)))
    assert (found["state"], found["waitsFor"]) == (
        "is not tried",
        ["Gang default/g has 2 schedulable pods and needs 3."],
    )


def test_a_gated_member_is_named() -> None:
    found = explained(gang_of(member("g", 0, 2), member("g", 1, 2, gated=True)))
    assert found["waitsFor"][1:] == ["Members that have scheduling gates or are being deleted, 1: default/g-1."]
    assert [each["reason"] for each in found["waiting"]] == [
        "is not tried: the gang is incomplete",
        "has scheduling gates: example.com/later",
    ]


def test_a_missing_gang_of_the_group_is_named() -> None:
    found = explained(gang_of(member("g", 0, together=("g", "h"))))
    assert found["waitsFor"] == ["Gang default/h of its group does not exist."]
    assert [each["exists"] for each in found["group"]] == [True, False]


def test_without_a_declaration_it_says_what_is_missing() -> None:
    found = explained(gang_of(labelled("g", 0)))
    assert (found.get("minMember"), found["group"]) == (None, [])
    assert found["waitsFor"][0].startswith(
        "Nobody knows how many members must be placed together: there is no PodGroup"
    )


def test_members_that_hold_nodes_are_shown_with_them() -> None:
    cache = gang_of(member("g", 0, 2), member("g", 1, 2))
    cache.begin_attempt("uid-g-0")
    cache.permit("uid-g-0")
    found = explained(cache)
    assert found["state"] == "is being tried"
    assert found["waitsFor"] == ["1 more member of default/g must find a node before any member is bound."]
    assert [(each["pod"], each["node"]) for each in found["waiting"]] == [("default/g-1", ""), ("default/g-0", "n1")]


def test_the_member_that_failed_is_named_with_the_reason() -> None:
    cache = gang_of(member("g", 0, 2), member("g", 1, 2))
    cache.begin_attempt("uid-g-0")
    cache.attempt_failed("uid-g-0", "0/1 nodes are available")
    while cache.next_pod() is not None:
        pass
    found = explained(cache)
    assert found["state"] == "waits"
    assert found["waitsFor"][-1] == (
        "The last attempt ended because there was no node for default/g-0: 0/1 nodes are available"
    )
    assert found["waiting"][0]["reason"] == "found no node in the last attempt"


def test_a_gang_that_is_bound_waits_for_nothing() -> None:
    found = explained(gang_of(member("g", 0, 2), member("g", 1, 2), bound=2))
    assert (found["state"], found["waitsFor"], found["waiting"]) == ("has a node for every member", [], [])


def test_the_last_member_of_a_gang_that_has_run_is_placed_by_itself() -> None:
    found = explained(gang_of(member("g", 0, 2), member("g", 1, 2), bound=1))
    assert found["waiting"][0]["reason"] == "is placed by itself: the gang has run once"


@pytest.mark.parametrize(("running", "state"), [(0, "has finished"), (1, "has a node for every member")])
def test_members_that_have_finished_are_counted(running: int, state: str) -> None:
    cache = gang_of(*(labelled("g", number) for number in range(running)), bound=running)
    cache.set_pod_group(pod_group("g", 2))
    ended = [Pod(status=PodStatus(phase=phase)) for phase in ("Succeeded", "Failed", "Succeeded")]
    found = explained(cache, finished=ended)
    assert (found["state"], found["finished"]) == (state, {"Failed": 1, "Succeeded": 2})
