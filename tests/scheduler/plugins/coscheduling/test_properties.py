"""What holds for the gang cache after any events in any order, and for ten thousand pods of one group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.pod import Pod
from koordinator.scheduler.plugins.coscheduling.documents import what_it_waits_for
from koordinator.scheduler.plugins.coscheduling.gang import MemberState
from koordinator.scheduler.plugins.coscheduling.gang_cache import GangCache
from tests.scheduler.plugins.coscheduling.gang_fakes import labelled, member, pod_group

GANGS = ("a", "b")
MANY = 10_000


def state_of(cache: GangCache) -> dict[str, Any]:
    """What follows from the API alone, without the order in which it came."""
    return {
        id_: (
            gang.declaration,
            gang.collected,
            gang.is_admitted,
            gang.group is not None and gang.group.once_satisfied,
            {uid: each.state for uid, each in gang.members.items()},
        )
        for id_, gang in cache.gangs.items()
    }


def show(cache: GangCache, event: tuple[str, Any]) -> None:
    kind, about = event
    match kind:
        case "group":
            gang, minimum, together = about
            names = '["default/a","default/b"]' if together else f'["default/{gang}"]'
            cache.set_pod_group(pod_group(gang, minimum, groups=names))
        case "no group":
            cache.remove_pod_group(f"default/{about}")
        case "pod":
            gang, number, is_bound = about
            cache.set_pod(labelled(gang, number), "n" if is_bound else "")
        case "no pod":
            cache.remove_pod(f"uid-{about[0]}-{about[1]}")


gangs = st.sampled_from(GANGS)
numbers = st.integers(0, 3)
objects = st.fixed_dictionaries(
    {
        "groups": st.dictionaries(gangs, st.tuples(st.integers(1, 4), st.booleans())),
        "pods": st.dictionaries(st.tuples(gangs, numbers), st.booleans()),
    }
)


def events_of(found: dict[str, Any]) -> list[tuple[str, Any]]:
    groups: list[tuple[str, Any]] = [("group", (gang, *about)) for gang, about in found["groups"].items()]
    return groups + [("pod", (*key, is_bound)) for key, is_bound in found["pods"].items()]


@given(objects, st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_matter(found: dict[str, Any], random: Any) -> None:
    events = events_of(found)
    first, second = GangCache(), GangCache()
    for event in events:
        show(first, event)
    random.shuffle(events)
    for event in events:
        show(second, event)
    assert state_of(first) == state_of(second)


any_event = st.one_of(
    st.tuples(st.just("group"), st.tuples(gangs, st.integers(1, 4), st.booleans())),
    st.tuples(st.just("no group"), gangs),
    st.tuples(st.just("pod"), st.tuples(gangs, numbers, st.just(False))),
    st.tuples(st.just("no pod"), st.tuples(gangs, numbers)),
)


def left_of(events: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The objects that are there after the events, as if all had just been listed."""
    groups: dict[str, Any] = {}
    pods: dict[Any, Any] = {}
    for kind, about in events:
        match kind:
            case "group":
                groups[about[0]] = about
            case "no group":
                groups.pop(about, None)
            case "pod":
                pods[about[:2]] = about
            case "no pod":
                pods.pop(about, None)
    return [*(("group", each) for each in groups.values()), *(("pod", each) for each in pods.values())]


@given(st.lists(any_event, max_size=20))
def test_after_any_events_the_cache_is_as_after_a_restart(events: list[tuple[str, Any]]) -> None:
    cache, fresh = GangCache(), GangCache()
    for event in events:
        show(cache, event)
    for event in left_of(events):
        show(fresh, event)
    assert state_of(cache) == state_of(fresh)


@given(objects)
def test_no_gang_is_half_bound_unnoticed(found: dict[str, Any]) -> None:
    cache = GangCache()
    for event in events_of(found):
        show(cache, event)
    for gang in cache.gangs.values():
        if gang.by_state[MemberState.BOUND] and gang.by_state[MemberState.PENDING]:
            assert gang.is_released or what_it_waits_for(cache, gang)


def great_group() -> tuple[GangCache, list[Pod]]:
    cache, half = GangCache(), MANY // 2
    pods = [member(gang, number, half, together=GANGS) for gang in GANGS for number in range(half)]
    for pod in pods:
        cache.set_pod(pod, "")
    return cache, pods


def test_ten_thousand_pods_of_a_group_are_allowed_together() -> None:
    cache, pods = great_group()
    uid: str | None = pods[0].metadata.uid
    while uid is not None:
        assert cache.begin_attempt(uid) == ""
        cache.permit(uid)
        uid = cache.next_pod()
    assert len(cache.take_instructions().allow) == MANY - 1
    for pod in pods:
        cache.bound(pod.metadata.uid)
    assert all(len(gang.by_state[MemberState.BOUND]) == MANY // 2 for gang in cache.gangs.values())


def test_ten_thousand_pods_of_a_group_are_given_up_together() -> None:
    cache, pods = great_group()
    uid: str | None = pods[0].metadata.uid
    for _ in range(MANY - 1):
        assert uid is not None
        cache.begin_attempt(uid)
        cache.permit(uid)
        uid = cache.next_pod()
    assert uid is not None
    cache.begin_attempt(uid)
    cache.attempt_failed(uid, "no room")
    assert len(cache.take_instructions().reject) == MANY - 1
    for pod in pods:
        cache.unreserve(pod.metadata.uid)
    assert cache.next_pod() is None
    assert not any(gang.by_state[MemberState.WAITING] for gang in cache.gangs.values())
