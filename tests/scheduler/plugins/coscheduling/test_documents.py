"""The services' documents of gangs, in the form that programs read from the original: sets are objects by name."""

from __future__ import annotations

from typing import Any

from koordinator.scheduler.plugins.coscheduling.documents import Keys, gang_document
from koordinator.scheduler.plugins.coscheduling.gang_cache import GangCache
from tests.scheduler.plugins.coscheduling.gang_fakes import labelled, member, pod_group


def shown(cache: GangCache, name: str = "g") -> dict[str, Any]:
    return gang_document(cache.gangs[f"default/{name}"])


def of_two() -> GangCache:
    cache = GangCache()
    cache.set_pod_group(pod_group("g", 2))
    for number in range(2):
        cache.set_pod(labelled("g", number), "")
    return cache


def test_the_members_are_objects_by_key_in_each_state() -> None:
    cache = of_two()
    cache.begin_attempt("uid-g-0")
    assert cache.permit("uid-g-0") is not None
    document = shown(cache)
    assert document["children"] == {"default/g-0": {}, "default/g-1": {}}
    assert document["waitingForBindChildren"] == {"default/g-0": {}}
    assert document["pendingChildren"] == {"default/g-1": {}}
    assert document["boundChildren"] == {}
    assert document["gangGroupInfo"] == {
        "Initialized": True,
        "GangGroupId": "default/g",
        "GangGroup": ["default/g"],
        "OnceResourceSatisfied": False,
        "WaitingGangIDs": {"default/g": {}},
        "RepresentativePodKey": "default/g-1",
        "BindingMemberPods": None,
        "failure": "",
    }


def test_members_that_are_being_bound_are_named_until_they_are() -> None:
    cache = of_two()
    cache.begin_attempt("uid-g-0")
    for number in range(2):
        cache.permit(f"uid-g-{number}")
    keys: Keys = {"default/g-0": {}, "default/g-1": {}}
    document = shown(cache)
    assert (document["waitingForBindChildren"], document["gangGroupInfo"]["BindingMemberPods"]) == (keys, keys)
    for number in range(2):
        cache.bound(f"uid-g-{number}")
    document = shown(cache)
    assert (document["boundChildren"], document["gangGroupInfo"]["BindingMemberPods"]) == (keys, None)
    assert document["gangGroupInfo"]["OnceResourceSatisfied"]


def test_a_gang_that_nothing_declares_has_the_defaults() -> None:
    cache = GangCache()
    cache.set_pod(labelled("g", 0), "")
    document = shown(cache)
    names = ("mode", "gangMatchPolicy", "gangGroup", "createTime", "hasGangInit")
    assert [document[name] for name in names] == [
        "Strict",
        "once-satisfied",
        ["default/g"],
        "0001-01-01T00:00:00Z",
        False,
    ]
    assert (document["gangGroupInfo"]["Initialized"], document["gangGroupInfo"]["GangGroup"]) == (False, None)


def test_an_incomplete_gang_has_nobody_who_represents_it() -> None:
    cache = GangCache()
    cache.set_pod(member("g", 0, 2), "")
    assert shown(cache)["gangGroupInfo"]["RepresentativePodKey"] == ""
