"""Free capacity of a node: what is left when all that pods above class free use is taken off."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from msgspec.structs import replace

from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.model.overcommit.batch import node_inputs
from koordinator.model.overcommit.facts import MetricFacts, NodeFacts, NodePods, PodFacts
from koordinator.model.overcommit.free import free_amounts
from koordinator.model.overcommit.node_diff import diff_node
from koordinator.model.overcommit.node_report import NodeReport
from koordinator.model.overcommit.plan import Plan, decide
from koordinator.model.overcommit.policies import KNOWN_PLUGINS, CapacityPolicy, Policies
from tests.model.overcommit.drawn_nodes import decided, metrics, nodes, policies, some_pods
from tests.model.overcommit.node_objects import NOW, a_metric, a_node, a_pod, a_snapshot, policy, values

GIGA: Final = 10**9
FREE_CPU: Final = "kubernetes.io/free-cpu"
FREE_MEMORY: Final = "kubernetes.io/free-memory"
PODS: Final = (
    a_pod("prod", ("20", "20G"), priority=9500),
    a_pod("mid", ("5", "5G"), priority=7500),
    a_pod("batch", priority=5500),
    a_pod("free", priority=3500),
)
USAGE: Final = {"prod": ("10", "10G"), "mid": ("3", "3G"), "batch": ("5", "6G"), "free": ("4", "4G")}
REPORT: Final = a_metric(USAGE)
LEFT: Final = (40_000, 47 * GIGA)
"""Of 100 and 120 G: 35 percent are margin, 7 and 12 G the system's, 18 and 19 G used by pods above class free."""


def planned(
    report: NodeReport = REPORT,
    *more: Pod,
    node: Node | None = None,
    plugins: tuple[str, ...] = KNOWN_PLUGINS,
    **given_: Any,
) -> Plan:
    snapshot = a_snapshot(node or a_node(), (*PODS, *more), report)
    return decide(snapshot, Policies(policy(**given_), plugins=frozenset(plugins)), NOW)


def free_of(plan: Plan) -> tuple[int | None, int | None]:
    found = values(plan)
    return found[FREE_CPU], found[FREE_MEMORY]


def new_pod(priority: int, **requests: str) -> Pod:
    amounts = {f"kubernetes.io/{name.replace('_', '-')}": amount for name, amount in requests.items()}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    document = {
        "metadata": {"name": "new", "namespace": "test", "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {"priority": priority, "containers": [container]},
        "status": {"phase": "Pending"},
    }
    return convert(document, Pod)


def test_it_is_what_all_other_pods_leave() -> None:
    assert free_of(planned()) == LEFT


def test_each_class_of_use_is_a_term_of_its_own() -> None:
    cpu = next(each for each in planned().amounts if each.resource == FREE_CPU)
    assert dict(cpu.terms) == {
        "capacity": 100_000,
        "safetyMargin": -35_000,
        "systemUsage": -7_000,
        "podUsage": -13_000,
        "batchPodUsage": -5_000,
    }


def test_a_batch_pod_without_a_metric_counts_with_its_request() -> None:
    new = new_pod(5500, batch_cpu="2000", batch_memory="1G")
    assert free_of(planned(REPORT, new)) == (LEFT[0] - 2000, LEFT[1] - GIGA)


def test_a_free_pod_without_a_metric_takes_nothing() -> None:
    assert free_of(planned(REPORT, new_pod(3500, free_cpu="2000", free_memory="1G"))) == LEFT


def test_a_batch_pod_that_is_no_longer_listed_still_counts() -> None:
    gone = a_metric({**USAGE, "gone": ("1", "1G")}, priorities={"gone": "koord-batch"})
    assert free_of(planned(gone)) == (LEFT[0] - 1000, LEFT[1] - GIGA)


def test_host_applications_of_class_batch_take_from_free_alone() -> None:
    report = a_metric(USAGE, hosts={"koord-batch": ("2", "2G"), "koord-free": ("1", "1G")})
    plan = planned(report)
    assert free_of(plan) == (LEFT[0] - 2000, LEFT[1] - 2 * GIGA)
    assert values(plan)["kubernetes.io/batch-cpu"] == values(planned())["kubernetes.io/batch-cpu"]


def test_a_free_pod_that_is_no_longer_listed_is_not_counted_as_a_batch_pod() -> None:
    gone = a_metric({**USAGE, "gone": ("1", "1G")}, priorities={"gone": "koord-free"})
    assert free_of(planned(gone)) == LEFT


def test_a_pod_that_is_reported_twice_has_the_class_of_the_last_report() -> None:
    reported = a_metric(
        {**USAGE, "gone": ("1", "1G"), "again": ("1", "1G")}, priorities={"gone": "koord-free", "again": "koord-batch"}
    )
    *others, last = reported.status.pods_metric
    status = replace(reported.status, pods_metric=[*others, replace(last, name="gone")])
    assert free_of(planned(replace(reported, status=status))) == (LEFT[0] - 1000, LEFT[1] - GIGA)


def test_batch_and_free_pods_together_get_no_more_than_the_limit() -> None:
    limits: dict[str, Any] = {"batch_cpu_threshold_percent": 10, "batch_memory_threshold_percent": 10}
    assert free_of(planned(**limits)) == (10_000 - 5000, 12 * GIGA - 6 * GIGA)
    new = new_pod(5500, batch_cpu="2000", batch_memory="1G")
    hosts = a_metric(USAGE, hosts={"koord-prod": ("1", "1G"), "koord-batch": ("2", "2G"), "koord-free": ("1", "1G")})
    assert free_of(planned(hosts, new, **limits)) == (1000, 3 * GIGA)
    assert free_of(planned(a_metric({**USAGE, "batch": ("11", "13G")}), **limits)) == (0, 0)


def test_it_is_never_below_zero() -> None:
    assert free_of(planned(a_metric({**USAGE, "batch": ("90", "110G")}))) == (0, 0)


def test_an_old_report_offers_nothing() -> None:
    report = a_metric(USAGE, updated=NOW - timedelta(hours=1))
    codes = {each.resource: each.reset for each in planned(report).amounts}
    assert {codes[FREE_CPU], codes[FREE_MEMORY]} == {"MetricExpired"}


def test_without_the_plugin_a_node_has_none_and_nothing_is_said_of_it() -> None:
    plugins = tuple(each for each in KNOWN_PLUGINS if each != "FreeResource")
    assert {each.resource for each in planned(plugins=plugins).amounts} == set(values(planned())) - {
        FREE_CPU,
        FREE_MEMORY,
    }


@pytest.mark.parametrize("enable", [True, False])
def test_what_is_there_from_before_is_removed(enable: bool) -> None:
    node = a_node(extended={FREE_CPU: "1000", FREE_MEMORY: "1G"})
    plugins = tuple(each for each in KNOWN_PLUGINS if each != "FreeResource")
    snapshot = a_snapshot(node, PODS, REPORT)
    capacity = CapacityPolicy(enable=enable)
    plan = decide(snapshot, Policies(capacity, plugins=frozenset(plugins)), NOW)
    (why,) = {each.message for each in plan.amounts if each.resource in (FREE_CPU, FREE_MEMORY)}
    assert why == "the feature gate FreeResource is off, or --noderesource-plugins leaves FreeResource out"
    patch = diff_node(node, plan, capacity, NOW, NOW).status_patch() or {}
    assert patch["status"]["allocatable"] | {FREE_CPU: None, FREE_MEMORY: None} == patch["status"]["allocatable"]


@given(nodes(), some_pods(numa=False), metrics(), policies)
def test_it_is_never_more_than_batch_capacity_by_usage(
    node: NodeFacts, pods: list[PodFacts], metric: MetricFacts, given_: CapacityPolicy
) -> None:
    metric = replace(metric, hosts_above_free=metric.hosts_above_batch)
    by_usage = CapacityPolicy(
        enable=True,
        cpu_reclaim_threshold_percent=given_.cpu_reclaim_threshold_percent,
        memory_reclaim_threshold_percent=given_.memory_reclaim_threshold_percent,
        batch_cpu_threshold_percent=given_.batch_cpu_threshold_percent,
        batch_memory_threshold_percent=given_.batch_memory_threshold_percent,
    )
    batch = values(decided(node, pods, metric, by_usage))
    listed = NodePods(pods)
    cpu, memory = free_amounts(node_inputs(node, listed, metric, by_usage), listed, metric)
    assert 0 <= cpu.value <= (batch["kubernetes.io/batch-cpu"] or 0)
    assert 0 <= memory.value <= (batch["kubernetes.io/batch-memory"] or 0)
