"""What the state machine of gangs does about single events."""

from __future__ import annotations

from typing import Any

import msgspec

from koordinator.scheduler.plugins.coscheduling.gang import MemberState
from koordinator.scheduler.plugins.coscheduling.gang_cache import GangCache
from tests.scheduler.plugins.coscheduling.gang_fakes import labelled, member, pod_group


def waiting_gang(count: int, minimum: int, **annotations: Any) -> GangCache:
    """``count`` members with a node, of which ``minimum`` there must be."""
    cache = GangCache()
    for number in range(minimum):
        cache.set_pod(member("g", number, minimum, **annotations), "")
    cache.take_instructions()
    for number in range(count):
        cache.begin_attempt(f"uid-g-{number}")
        cache.permit(f"uid-g-{number}")
    cache.take_instructions()
    return cache


def test_a_non_strict_gang_whose_patience_is_over_lets_go_of_all_nodes() -> None:
    cache = waiting_gang(2, 3, mode="NonStrict")
    cache.unreserve("uid-g-0")
    assert [uid for uid, _ in cache.take_instructions().reject] == ["uid-g-1"]


def test_a_non_strict_gang_keeps_its_nodes_when_a_waiting_member_is_deleted() -> None:
    cache = waiting_gang(2, 3, mode="NonStrict")
    cache.remove_pod("uid-g-0")
    cache.unreserve("uid-g-0")
    assert cache.take_instructions().reject == []


def test_a_strict_gang_lets_go_when_a_waiting_member_is_deleted() -> None:
    cache = waiting_gang(2, 3)
    cache.remove_pod("uid-g-0")
    assert cache.take_instructions().reject == [
        ("uid-g-1", 'Gang "default/g" gets rejected due to Pod "g-0" in Unreserve')
    ]


def test_members_that_come_after_the_failure_of_others_are_tried_anew() -> None:
    cache = waiting_gang(0, 2)
    cache.begin_attempt("uid-g-0")
    cache.attempt_failed("uid-g-0", "0/1 nodes are available: 1 Insufficient cpu.")
    assert "Insufficient cpu" in cache.begin_attempt("uid-g-1")
    for number in range(2):
        cache.set_pod(member("g", number + 2, 2), "")
        cache.remove_pod(f"uid-g-{number}")
    assert cache.begin_attempt("uid-g-2") == ""
    assert cache.next_pod() == "uid-g-3"
    assert cache.begin_attempt("uid-g-3") == ""


def test_members_that_have_been_rejected_count_no_more() -> None:
    cache = waiting_gang(2, 3)
    cache.unreserve("uid-g-0")
    cache.begin_attempt("uid-g-2")
    assert cache.permit("uid-g-2") == 600.0


def test_waiting_members_are_bound_when_the_minimum_is_lowered() -> None:
    cache = GangCache()
    cache.set_pod_group(pod_group("g", 3))
    for number in range(3):
        cache.set_pod(labelled("g", number), "")
    for number in range(2):
        cache.begin_attempt(f"uid-g-{number}")
        cache.permit(f"uid-g-{number}")
    cache.take_instructions()
    cache.set_pod_group(pod_group("g", 2))
    assert cache.take_instructions().allow == ["uid-g-0", "uid-g-1"]


def test_without_its_pod_group_a_gang_says_what_is_missing() -> None:
    cache = GangCache()
    cache.set_pod_group(pod_group("g", 1))
    cache.set_pod(labelled("g", 0), "")
    cache.remove_pod_group("default/g")
    assert cache.admission_error(labelled("g", 0)) == (
        "gang has not init, gangName: default/g, podName: default/g-0: there is no PodGroup default/g, and of the pod "
        "gang.scheduling.koordinator.sh/min-available is missing; expected is a number of pods"
    )


def test_a_group_that_names_a_missing_gang_says_so() -> None:
    cache = GangCache()
    pod = member("a", 0, 1, together=("a", "b"))
    cache.set_pod(pod, "")
    assert cache.admission_error(pod) == (
        "gangGroup [default/a default/b] basic check: memberGangs [default/b] doesn't exists, current gang: default/a, "
        "podName: default/a-0"
    )


def test_a_pod_that_changes_its_gang_leaves_the_old_one() -> None:
    cache = GangCache()
    pod = member("a", 0, 1)
    cache.set_pod(pod, "")
    cache.set_pod(msgspec.structs.replace(member("b", 0, 1), metadata=_renamed(member("b", 0, 1), pod)), "")
    assert list(cache.gangs) == ["default/b"]


def _renamed(pod: object, as_: object) -> object:
    return msgspec.structs.replace(pod.metadata, name=as_.metadata.name, uid=as_.metadata.uid)  # type: ignore[attr-defined]


def test_one_bound_member_lets_the_others_go_on_one_by_one() -> None:
    cache = GangCache()
    cache.set_pod(member("g", 0, 3), "node")
    cache.set_pod(member("g", 1, 3), "")
    assert cache.admission_error(member("g", 1, 3)) == ""
    assert cache.begin_attempt("uid-g-1") == ""
    assert cache.permit("uid-g-1") is None


def test_a_gang_that_wants_so_many_waiting_counts_those_of_the_same_attempt_that_are_bound() -> None:
    cache = GangCache()
    for number in range(3):
        cache.set_pod(member("g", number, 2, match_policy="only-waiting"), "")
    for number in range(2):
        cache.begin_attempt(f"uid-g-{number}")
        cache.permit(f"uid-g-{number}")
    for number in range(2):
        cache.bound(f"uid-g-{number}")
    cache.begin_attempt("uid-g-2")
    assert cache.permit("uid-g-2") is None


def test_the_others_are_tried_when_the_member_that_failed_is_deleted() -> None:
    cache = GangCache()
    for number in range(3):
        cache.set_pod(member("g", number, 2), "")
    cache.begin_attempt("uid-g-0")
    cache.attempt_failed("uid-g-0", "no room")
    cache.take_instructions()
    cache.remove_pod("uid-g-0")
    assert cache.take_instructions().activate == ["uid-g-1", "uid-g-2"]


def test_a_gang_without_pods_is_forgotten() -> None:
    cache = GangCache()
    cache.set_pod(member("g", 0, 1), "")
    cache.remove_pod("uid-g-0")
    assert cache.gangs == {}
    assert not cache.groups


def test_members_that_are_bound_are_no_more_pending() -> None:
    cache = waiting_gang(2, 2)
    cache.bound("uid-g-0")
    gang = cache.gangs["default/g"]
    assert {state: len(found) for state, found in gang.by_state.items() if found} == {
        MemberState.BINDING: 1,
        MemberState.BOUND: 1,
    }
