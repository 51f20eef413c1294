"""What becomes of pods: admitted, rejected with the original's texts, or let in at the cost of others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from koordinator.api.elastic_quota import ElasticQuota as ElasticQuotaObject
from koordinator.api.kinds import ELASTIC_QUOTAS
from koordinator.api.pod import Pod
from koordinator.api.quantity import Quantity
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.row_amounts import CPU
from koordinator.scheduler.features import (
    DISABLE_DEFAULT_QUOTA,
    IGNORE_OVERDUE,
    IGNORE_OVERHEAD,
    IGNORE_TERMINATING,
)
from koordinator.scheduler.plugins.elastic_quota.plugin import SHARES_CHANGED
from tests.model.quota_tree.quota_objects import wire_quota
from tests.scheduler.fakes import describe, make_node
from tests.scheduler.ground.clusters import NOW
from tests.scheduler.plugins.elastic_quota.quota_cluster import QuotaCluster, of_quota


def limited(cpu: str, *, least: str = "0", **given: Any) -> ElasticQuotaObject:
    return wire_quota("a", max={"cpu": cpu, "memory": "64Gi"}, min={"cpu": least}, **given)


def with_limit(cpu: str, **args: Any) -> QuotaCluster:
    cluster = QuotaCluster(**args)
    cluster.quota(limited(cpu))
    return cluster


def test_max_is_never_exceeded_however_many_pods_are_decided_about_at_once() -> None:
    cluster = with_limit("3")
    placed = [
        isinstance(cluster.decide(of_quota(f"p{n}")), Placement) and cluster.place(of_quota(f"p{n}")) for n in range(5)
    ]
    assert [bool(each) for each in placed] == [True, True, True, False, False]
    assert cluster.used("a") == 3000


def test_a_pod_is_concerned_unless_its_quota_admits_all() -> None:
    cluster = QuotaCluster()
    pod = cluster.place(of_quota("p")).pod

    def is_concerned() -> bool:
        return cluster.plugin in cluster.engine.profile.for_pod(pod).pre_filter_cycle

    assert not is_concerned()
    cluster.quota(limited("3"))
    assert is_concerned()
    assert cluster.used("a") == 1000
    assert is_concerned()
    cluster.state.set_object(ELASTIC_QUOTAS, limited("3").metadata.key, None)
    cluster.place(of_quota("q"))
    assert not is_concerned()


def test_the_reason_is_the_original_s() -> None:
    cluster = with_limit("1")
    cluster.place(of_quota("first"))
    assert cluster.reject(of_quota("second")).message == (
        "0/2 nodes are available: Insufficient quotas, quotaName: a, runtime: cpu:1,memory:2Gi, used: cpu:1,memory:1Gi,"
        " pod's request: cpu:1,memory:1Gi, exceedDimensions: [cpu]. preemption: 0/2 nodes are available: 1 No victims "
        "found on node n0 for preemptor pod second, 1 No victims found on node n1 for preemptor pod second."
    )


def test_a_binding_that_fails_gives_back_what_was_used() -> None:
    cluster = with_limit("1")
    cluster.engine.forget(cluster.place(of_quota("first")))
    assert cluster.used("a") == 0
    cluster.place(of_quota("second"))


def test_a_pod_on_a_node_that_nobody_knows_is_counted() -> None:
    cluster = with_limit("1")
    cluster.bound(of_quota("first", node="gone"), "gone")
    cluster.reject(of_quota("second"))


def test_a_node_that_goes_takes_no_pod_out_of_its_quota() -> None:
    cluster = with_limit("1")
    pod = cluster.bound(of_quota("first", node="n0"), "n0")
    cluster.state.remove_node("n0")
    assert cluster.used("a") == 1000
    cluster.state.remove_pod(pod.uid)
    cluster.state.hide_pod(pod.uid)
    assert cluster.used("a") == 0


def test_a_pod_that_may_not_be_preempted_needs_what_is_guaranteed() -> None:
    cluster = QuotaCluster()
    cluster.quota(limited("4", least="1"))
    cluster.place(of_quota("first", preemptible="false"))
    message = cluster.reject(of_quota("second", preemptible="false")).message
    assert (
        "Insufficient non-preemptible quotas, quotaName: a, min: cpu:1, nonPreemptibleUsed: cpu:1,memory:1Gi, "
        "pod's request: cpu:1,memory:1Gi, exceedDimensions: [cpu]" in message
    )
    cluster.place(of_quota("third"))


def test_parents_are_checked_if_that_is_requested() -> None:
    cluster = QuotaCluster(enable_check_parent_quota=True, enable_runtime_quota=False)
    cluster.quota(wire_quota("top", is_parent=True, max={"cpu": 1}))
    for name in ("a", "b"):
        cluster.quota(wire_quota(name, parent="top", max={"cpu": 4}))
    cluster.place(of_quota("first", "b"))
    assert (
        "Insufficient quotas, quotaNameTopo: [top a], runtime: cpu:1, used: cpu:1, pod's request: cpu:1, "
        "exceedDimensions: [cpu]" in cluster.reject(of_quota("second")).message
    )


def test_without_a_default_quota_unknown_quotas_limit_nothing() -> None:
    cluster = QuotaCluster(gates=frozenset({DISABLE_DEFAULT_QUOTA}), default_quota_group_max={})
    assert cluster.plugin.accounts.node_of(of_quota("p", "nowhere").metadata) is None
    cluster.place(of_quota("p", "nowhere"))


@pytest.mark.parametrize(("gates", "left"), [(frozenset(), 1000), (frozenset({IGNORE_TERMINATING}), 0)])
def test_a_pod_that_is_leaving_counts_unless_a_gate_says_otherwise(gates: frozenset[str], left: int) -> None:
    cluster = with_limit("1", gates=gates)
    pod = of_quota("p", node="n0")
    cluster.bound(pod, "n0")
    leaving = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC)))
    cluster.bound(leaving, "n0")
    assert cluster.used("a") == left


def leaving(pod: Pod, seconds: float) -> Pod:
    """To be gone then, with as much time again as its grace period."""
    moment = NOW + timedelta(seconds=seconds)
    metadata = replace(pod.metadata, deletion_timestamp=moment, deletion_grace_period_seconds=30)
    return replace(pod, metadata=metadata)


OVERDUE: Final = frozenset({IGNORE_OVERDUE})


def test_a_pod_that_should_have_been_gone_counts_no_more() -> None:
    cluster = with_limit("1", gates=OVERDUE)
    pod = leaving(of_quota("p", node="n0"), 10)
    cluster.bound(pod, "n0")
    cluster.reject(of_quota("q"))
    assert cluster.used("a") == 1000
    plugin = cluster.plugin
    assert plugin.next_time_event() == (NOW + timedelta(seconds=40)).timestamp()
    assert plugin.time_events(NOW + timedelta(seconds=39)) == ()
    (event,) = plugin.time_events(NOW + timedelta(seconds=40))
    assert cluster.used("a") == 0
    assert plugin.queueing_hint(describe(of_quota("q")), event)
    assert plugin.next_time_event() is None
    cluster.view.now = NOW + timedelta(seconds=41)
    cluster.bound(replace(pod, metadata=replace(pod.metadata, labels={**pod.metadata.labels, "new": ""})), "n0")
    assert cluster.used("a") == 0, "whatever else is said of it"


def test_who_waits_is_told_of_pods_that_a_decision_has_found_overdue() -> None:
    cluster = with_limit("1", gates=OVERDUE)
    cluster.bound(leaving(of_quota("p", node="n0"), -60), "n0")
    cluster.place(of_quota("q"))
    assert cluster.plugin.next_time_event() == 0
    assert len(cluster.plugin.time_events(NOW)) == 1
    assert cluster.plugin.next_time_event() is None


def test_without_the_gate_a_pod_counts_until_it_is_gone() -> None:
    cluster = with_limit("1")
    cluster.bound(leaving(of_quota("p", node="n0"), -60), "n0")
    cluster.reject(of_quota("q"))
    assert cluster.plugin.next_time_event() is None


@pytest.mark.parametrize(("gates", "used"), [(frozenset(), 1200), (frozenset({IGNORE_OVERHEAD}), 1000)])
def test_overhead_counts_unless_a_gate_says_otherwise(gates: frozenset[str], used: int) -> None:
    cluster = with_limit("2", gates=gates)
    pod = of_quota("p", node="n0")
    pod = replace(pod, spec=replace(pod.spec, overhead={"cpu": Quantity.parse("200m")}))
    info = make_pod_info(pod)
    cluster.state.set_pod(info, "n0")
    cluster.state.show_pod(info, "n0")
    assert cluster.used("a") == used
    assert cluster.view.columns.requested[0, CPU] == 1200, "on its node it counts"


@pytest.mark.parametrize(
    ("parent", "why"),
    [
        ("nobody", "quota a belongs to no tree: there is no quota nobody, the parent of a"),
        ("a", "quota a belongs to no tree: its parents form a cycle: a -> a"),
        ("b", "quota a belongs to no tree: its parents form a cycle: a -> b -> a"),
    ],
)
def test_a_quota_without_a_tree_admits_no_pod_and_says_why(parent: str, why: str) -> None:
    cluster = QuotaCluster()
    cluster.quota(limited("4", parent=parent))
    cluster.quota(wire_quota("b", parent="a", max={"cpu": 4}))
    assert why in cluster.reject(of_quota("p")).message


def test_a_reservation_in_an_idle_quota_sees_what_it_could_be_lent() -> None:
    cluster = with_limit("4")
    cluster.view.pseudo_pods.add("uid-reserve")
    cluster.place(of_quota("reserve", cpu="3"))
    assert cluster.used("a") == 0


class TestPreemption:
    def test_the_least_important_of_the_quota_leaves(self) -> None:
        cluster = with_limit("3")
        for name, priority in (("low", 1), ("lower", 0), ("same", 5)):
            cluster.bound(of_quota(name, priority=priority, node="n0"), "n0")
        after = cluster.reject(of_quota("vip", priority=5)).after
        assert ([victim.key for victim in after.victims], after.nominated_node) == (["default/lower"], "n0")

    @pytest.mark.parametrize("victim", [{"quota": "b"}, {"preemptible": "false"}, {"priority": 5}])
    def test_others_stay(self, victim: dict[str, Any]) -> None:
        cluster = with_limit("1")
        cluster.quota(wire_quota("b", max={"cpu": 9}))
        cluster.bound(of_quota("full", priority=9, node="n0"), "n0")
        cluster.bound(of_quota("other", node="n0", **{"priority": 0, **victim}), "n0")
        assert cluster.reject(of_quota("vip", priority=5)).after.victims == ()

    def test_nobody_leaves_where_that_would_not_be_enough(self) -> None:
        cluster = with_limit("4")
        cluster.bound(of_quota("low", node="n0"), "n0")
        cluster.bound(of_quota("high", cpu="3", priority=9, node="n1"), "n1")
        assert cluster.reject(of_quota("vip", cpu="2", priority=5)).after.victims == ()

    def test_nobody_leaves_for_what_stands_for_a_reservation(self) -> None:
        cluster = with_limit("1")
        cluster.bound(of_quota("low", node="n0"), "n0")
        cluster.view.pseudo_pods.add("uid-vip")
        assert cluster.reject(of_quota("vip", priority=5)).after.victims == ()

    def test_a_pod_that_must_not_preempt_does_not(self) -> None:
        cluster = with_limit("1")
        cluster.bound(of_quota("low", node="n0"), "n0")
        rejection = cluster.reject(of_quota("vip", priority=5, preemption_policy="Never"))
        assert rejection.message.endswith("preemption: not eligible due to preemptionPolicy=Never.")

    def test_nothing_has_changed_after_a_plan(self) -> None:
        cluster = with_limit("1")
        cluster.bound(of_quota("low", node="n0"), "n0")
        cluster.reject(of_quota("vip", priority=5))
        assert cluster.used("a") == 1000

    def test_pods_of_the_default_quota_are_spared(self) -> None:
        cluster = QuotaCluster()
        cluster.quota(wire_quota("koordinator-default-quota", max={"cpu": 1}))
        cluster.bound(of_quota("low", "", node="n0"), "n0")
        assert cluster.reject(of_quota("vip", "", priority=5)).after.victims == ()

    def test_where_many_nodes_have_no_victims_only_their_number_is_reported(self) -> None:
        cluster = with_limit("0", nodes=50)
        message = cluster.reject(of_quota("vip", priority=5)).message
        assert "50 No victims found on these nodes for preemptor pod vip" in message


class TestWaking:
    def test_a_pod_is_woken_only_by_what_lets_it_in(self) -> None:
        cluster = with_limit("2")
        first = cluster.bound(of_quota("first", cpu="1", node="n0"), "n0")
        cluster.bound(of_quota("second", cpu="1", node="n0"), "n0")
        large, small = describe(of_quota("large", cpu="2")), describe(of_quota("small"))
        cluster.state.remove_pod(first.uid)
        cluster.state.hide_pod(first.uid)
        event = ClusterEvent(EventKind.POD_DELETE, first)
        assert [cluster.plugin.queueing_hint(pod, event) for pod in (large, small)] == [False, True]

    def test_what_raises_a_share_is_announced(self) -> None:
        cluster, notified = with_limit("2"), list[str]()
        cluster.plugin.handle.announce = lambda event: notified.append(event.kind)  # type: ignore[method-assign]
        cluster.quota(limited("3"))
        assert notified == [SHARES_CHANGED]
        cluster.state.set_node(make_node("new"))
        assert len(notified) == 2

    def test_a_status_that_we_have_written_ourselves_is_not(self) -> None:
        cluster, notified = with_limit("2"), list[str]()
        cluster.plugin.handle.announce = lambda event: notified.append(event.kind)  # type: ignore[method-assign]
        cluster.quota(limited("2", used={"cpu": 1}, annotations={"runtime": {"cpu": "2"}}))
        assert notified == []

    def test_pods_that_request_the_same_wait_together(self) -> None:
        cluster = with_limit("0")
        first, second, other = (
            cluster.reject(of_quota(name, cpu=cpu)) for name, cpu in (("p", "1"), ("q", "1"), ("r", "2"))
        )
        assert first.waits_as == second.waits_as != other.waits_as


def test_quotas_are_read_from_objects_that_come_and_go() -> None:
    cluster = with_limit("0")
    cluster.reject(of_quota("p"))
    cluster.state.set_object(ELASTIC_QUOTAS, "kube-system/a", None)
    cluster.place(of_quota("p"))
