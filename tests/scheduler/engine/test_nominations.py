"""Promised nodes: each pod has one at most, and those whose promises matter to other pods' affinity are found."""

from __future__ import annotations

from msgspec.structs import replace

from koordinator.api.pod import Affinity
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import Nominations
from tests.scheduler.fakes import describe, make_pod


def names(nominations: Nominations, node_name: str) -> list[str]:
    return [pod.pod.metadata.name for pod in nominations.on(node_name)]


def make(name: str, affinity: Affinity | None = None) -> PodInfo:
    pod = make_pod(name)
    return describe(replace(pod, spec=replace(pod.spec, affinity=affinity)))


def test_a_pod_has_one_node() -> None:
    nominations = Nominations()
    nominations.set(make("p"), "a")
    nominations.set(make("p"), "b")
    assert (names(nominations, "a"), names(nominations, "b")) == ([], ["p"])


def test_the_first_nomination_comes_first() -> None:
    nominations = Nominations()
    for name in ("p", "q", "p"):
        nominations.set(make(name), "a")
    assert names(nominations, "a") == ["p", "q"]


def test_pods_with_affinity_are_known_as_long_as_they_are_nominated() -> None:
    nominations = Nominations()
    nominations.set(make("plain"), "a")
    nominations.set(make("choosy", Affinity()), "a")
    assert [pod.pod.metadata.name for pod in nominations.with_affinity] == ["choosy"]
    nominations.remove("uid-choosy")
    assert not list(nominations.with_affinity)
