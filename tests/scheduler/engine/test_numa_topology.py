"""The NUMA topology manager brings the plugins of a profile to the same NUMA nodes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import pytest

from koordinator.model.numa_topology.hints import Hints, NUMATopologyHint, NUMATopologyPolicy
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.numa_topology import (
    TOPOLOGY_HINTS,
    NUMAAlignment,
    NUMATopologyHintProvider,
    NUMATopologyPolicySource,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from tests.scheduler.fakes import describe, make_node, make_pod
from tests.scheduler.ground.clusters import Cluster

SINGLE, BEST_EFFORT = NUMATopologyPolicy.SINGLE_NUMA_NODE, NUMATopologyPolicy.BEST_EFFORT


class _Provider(NUMATopologyHintProvider):
    """Has something on the NUMA nodes ``has``."""

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.has = [0, 1]
        self.calls = 0
        self.refuses: tuple[Reason, ...] = ()

    def topology_key(self, pod: PodInfo) -> Hashable:
        return pod.pod.metadata.labels.get("wants")

    def get_pod_topology_hints(self, pod: PodInfo, row: int) -> Hints | Reason:
        self.calls += 1
        hints = tuple([NUMATopologyHint(1 << number, preferred=True) for number in self.has])
        return {self.name: hints} if hints else Reason(f"no {self.name}", unresolvable=True)

    def filter_affinity(self, pod: PodInfo, affinity: NUMATopologyHint, row: int) -> Sequence[Reason]:
        return self.refuses


class Cores(_Provider, NUMATopologyPolicySource):
    name = "Cores"
    policy: NUMATopologyPolicy | Reason | None = SINGLE

    def numa_alignment(self, pod: PodInfo, row: int) -> NUMAAlignment | Reason | None:
        return NUMAAlignment(self.policy, (0, 1)) if isinstance(self.policy, NUMATopologyPolicy) else self.policy


class Cards(_Provider):
    name = "Cards"


class _Ground:
    def __init__(self, *kinds: type[_Provider]) -> None:
        self.cluster = Cluster([make_node("a")], *kinds)
        self.manager = self.cluster.engine.handle.numa_topology
        self.pod = describe(make_pod("p"))

    def plugin(self, name: str) -> Any:
        return self.cluster.profile.plugins[name]


@pytest.fixture
def ground() -> _Ground:
    return _Ground(Cores, Cards)


def test_all_plugins_keep_to_the_numa_node_that_all_of_them_can_use(ground: _Ground) -> None:
    ground.plugin("Cores").has, ground.plugin("Cards").has = [0, 1], [1]

    assert ground.manager.affinity(ground.pod, 0) == NUMATopologyHint(0b10, preferred=True)


def test_a_pod_is_rejected_where_they_have_none_in_common(ground: _Ground) -> None:
    ground.plugin("Cores").has, ground.plugin("Cards").has = [0], [1]

    admission = ground.manager.admit(ground.pod, 0)

    cause = "Cards prefer [10] among [10],Cores prefer [01] among [01]"
    assert admission.reasons == (Reason(f"Unaligned NUMA Hint cause {cause}"),)
    assert admission.affinity is None


def test_every_plugin_that_has_nothing_says_so(ground: _Ground) -> None:
    ground.plugin("Cores").has = ground.plugin("Cards").has = []

    assert ground.manager.admit(ground.pod, 0).reasons == (Reason("no Cores"), Reason("no Cards"))


def test_a_plugin_may_refuse_what_the_hints_come_to(ground: _Ground) -> None:
    ground.plugin("Cards").refuses = (Reason("not with these"),)

    assert ground.manager.admit(ground.pod, 0).reasons == (Reason("not with these"),)


@pytest.mark.parametrize("policy", [None, Reason("no zones")])
def test_without_a_policy_nobody_is_queried(ground: _Ground, policy: Reason | None) -> None:
    ground.plugin("Cores").policy = policy

    admission = ground.manager.admit(ground.pod, 0)

    assert admission.affinity is None
    assert admission.reasons == ((policy,) if policy else ())
    assert ground.plugin("Cards").calls == 0


def test_a_profile_without_a_source_of_policies_aligns_nothing() -> None:
    ground = _Ground(Cards)

    assert ground.manager.admit(ground.pod, 0, reserving=True).affinity is None


def test_best_effort_has_a_say_at_reserve(ground: _Ground) -> None:
    ground.plugin("Cores").policy = BEST_EFFORT

    assert ground.manager.affinity(ground.pod, 0) is None
    assert ground.manager.affinity(ground.pod, 0, reserving=True) == NUMATopologyHint(0b1, preferred=True)


def test_like_pods_share_the_response_until_the_row_changes(ground: _Ground) -> None:
    cards, columns = ground.plugin("Cards"), ground.cluster.view.columns
    other = describe(make_pod("q", labels={"wants": "more"}))
    for pod in (ground.pod, describe(make_pod("p2")), other):
        ground.manager.admit(pod, 0)
    assert cards.calls == 2

    cards.has = [1]
    columns.touch(0, columns.aspect(TOPOLOGY_HINTS))

    assert ground.manager.affinity(ground.pod, 0) == NUMATopologyHint(0b10, preferred=True)


def test_a_row_that_is_seen_otherwise_is_queried_about_anew(ground: _Ground) -> None:
    ground.manager.admit(ground.pod, 0)
    view, cards = ground.cluster.view, ground.plugin("Cards")
    view.restored[(NUMATopologyHintProvider, "Cards", 0)] = "something"

    cards.has = [1]

    assert ground.manager.affinity(ground.pod, 0) == NUMATopologyHint(0b10, preferred=True)
