"""What is derived from pods is shared where it must be the same, and never where it may differ."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koordinator.api.meta import OwnerReference
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.pod_info import PodFacts, PodInfo, make_pod_info
from tests.scheduler.fakes import make_pod


class Counting:
    def __init__(self) -> None:
        self.made = 0

    def __call__(self, pod: Pod) -> PodInfo:
        self.made += 1
        return make_pod_info(pod)


def pair(first: Pod, second: Pod, *, alike: bool = True) -> tuple[PodInfo, PodInfo, int]:
    make = Counting()
    facts = PodFacts(make, lambda name: alike)
    return facts.of(first, None), facts.of(second, None), make.made


def test_replicas_share_what_is_derived_from_one_of_them() -> None:
    one, other, made = pair(make_pod("a"), make_pod("b"))
    assert made == 1
    assert one.memo is other.memo
    assert (other.key, other.uid) == ("default/b", "uid-b")


def test_replicas_of_one_owner_share_whatever_else_has_its_labels() -> None:
    make = Counting()
    facts = PodFacts(make, lambda name: True)
    seen = [facts.of(owned(make_pod(name, cpu=cpu), "set"), None) for name, cpu in (("a", "1"), ("b", "2"), ("c", "1"))]
    assert make.made == 2
    assert seen[0].memo is seen[2].memo


def test_nothing_is_shared_where_a_plugin_may_look_at_names() -> None:
    one, other, made = pair(make_pod("a"), make_pod("b"), alike=False)
    assert made == 2
    assert one.memo is not other.memo


def owned(pod: Pod, uid: str) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, owner_references=[OwnerReference(kind="ReplicaSet", uid=uid)])
    return msgspec.structs.replace(pod, metadata=metadata)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(make_pod("b", cpu="2"), id="requests"),
        pytest.param(make_pod("b", labels={"app": "x"}), id="labels"),
        pytest.param(make_pod("b", priority=7), id="priority"),
        pytest.param(make_pod("b", scheduler="other"), id="scheduler"),
        pytest.param(make_pod("b", node="a"), id="on a node"),
        pytest.param(owned(make_pod("b"), "another"), id="owner"),
    ],
)
def test_pods_that_differ_share_nothing(other: Pod) -> None:
    one, two, made = pair(make_pod("a"), other)
    assert made == 2
    assert one.memo is not two.memo


@pytest.mark.parametrize(("changes", "kept"), [({}, True), ({"labels": {"app": "x"}}, False), ({"cpu": "2"}, False)])
def test_a_change_of_the_pod_ends_what_followed_from_it(changes: dict[str, Any], kept: bool) -> None:
    facts = PodFacts(Counting(), lambda name: True)
    before = facts.of(make_pod("a"), None)
    after = facts.of(make_pod("a", **changes), before)
    assert (after.memo is before.memo) is kept
