"""Random nodes and quotas: what a plan evicts suffices, and none of it could stay; where there is no plan, evicting all
pods of the quota that may leave one node would not have helped."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.row_amounts import CPU
from tests.examples import examples
from tests.model.quota_tree.quota_objects import wire_quota
from tests.scheduler.plugins.elastic_quota.quota_cluster import QuotaCluster, of_quota

VIP_PRIORITY = 5
LARGE = {"cpu": "64", "memory": "64Gi"}


class Running(NamedTuple):
    node: str
    cpu: int
    quota: str
    priority: int
    preemptible: str


PODS = st.lists(
    st.builds(
        Running,
        st.sampled_from(["n0", "n1"]),
        st.integers(1, 3),
        st.sampled_from("aab"),
        st.sampled_from([0, 1, VIP_PRIORITY]),
        st.sampled_from(["true", "true", "false"]),
    ),
    max_size=5,
)


def cluster_of(limit: int, pods: Sequence[Running], without: Collection[str] = ()) -> QuotaCluster:
    """Two nodes of four CPUs. The quota a may use ``limit`` CPUs, which are guaranteed."""
    cluster = QuotaCluster()
    cluster.quota(wire_quota("a", max={"cpu": str(limit), "memory": "64Gi"}, min={"cpu": str(limit)}))
    cluster.quota(wire_quota("b", max=LARGE))
    for index, each in enumerate(pods):
        if f"p{index}" not in without:
            pod = of_quota(f"p{index}", each.quota, str(each.cpu), each.priority, preemptible=each.preemptible)
            cluster.bound(pod, each.node)
    return cluster


@settings(max_examples=examples(60))
@given(st.integers(1, 6), st.integers(1, 3), PODS)
def test_a_plan_is_enough_and_no_more_and_there_is_one_if_it_helps(limit: int, cpu: int, pods: list[Running]) -> None:
    vip = of_quota("vip", cpu=str(cpu), priority=VIP_PRIORITY)

    def fits(node: str, without: Collection[str]) -> bool:
        filler = Running("n1" if node == "n0" else "n0", 4, "b", VIP_PRIORITY, "false")
        return isinstance(cluster_of(limit, [*pods, filler], without).decide(vip), Placement)

    cluster = cluster_of(limit, pods)
    assume(all(cluster.view.columns.requested[row, CPU] <= 4000 for row in (0, 1)))
    decision = cluster.decide(vip)
    assume(isinstance(decision, Rejection))
    assert isinstance(decision, Rejection)
    may_leave: dict[str, set[str]] = {}
    for index, each in enumerate(pods):
        if each.quota == "a" and each.preemptible == "true" and each.priority < VIP_PRIORITY:
            may_leave.setdefault(each.node, set()).add(f"p{index}")
    victims = {victim.pod.metadata.name for victim in decision.after.victims}
    node = decision.after.nominated_node
    assert any(fits(each, names) for each, names in may_leave.items()) == bool(node)
    if node:
        assert victims <= may_leave[node]
        assert fits(node, victims)
        assert [each for each in victims if fits(node, victims - {each})] == []
