"""CPU suppression in the coarse model: what is left for best-effort pods, and what is reported of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.nodeslo import NodeSLO
from koordinator.api.pod import Pod
from koordinator.cluster.nodes.node_metrics import node_metric_statuses
from koordinator.cluster.nodes.node_objects import expand
from koordinator.cluster.nodes.population import Population
from koordinator.cluster.nodes.scenario import UsageModel, default_scenario, scale
from koordinator.cluster.nodes.suppression import SuppressedColumns, Threshold, Thresholds, others_of, suppressed
from koordinator.cluster.nodes.usage import BEHAVIOUR_ANNOTATION, Tier, per_node, profile_of, usage_at
from koordinator.kube.interface import WatchEvent
from koordinator.model.node_metric import CollectPolicy
from tests.cluster.nodes.clusters import Workload, node_columns, pod_columns, workloads

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def slo(node: str, **threshold: Any) -> NodeSLO:
    spec = {"resourceUsedThresholdWithBE": threshold} if threshold else {}
    return convert({"metadata": {"name": node}, "spec": spec}, NodeSLO)


def columns(count: int, share: float, least: float = 0.0) -> SuppressedColumns:
    return SuppressedColumns(np.full(count, share), np.full(count, least), np.full(count, 0.2))


@given(workloads(), st.lists(st.booleans(), min_size=20, max_size=20), st.floats(0, 1), st.floats(0, 0.5))
def test_best_effort_pods_get_what_others_leave_below_the_threshold_and_nobody_else_less(
    pods: list[Workload], are_best_effort: list[bool], share: float, least: float
) -> None:
    marked = [Workload(**{**vars(pod), "best_effort": flag}) for pod, flag in zip(pods, are_best_effort, strict=False)]
    given_, nodes = pod_columns(marked), node_columns(3)
    before = usage_at(100_000, given_, nodes, UsageModel(), 1)
    after, limit, held = suppressed(before, given_, nodes, columns(3, share, least))
    others = ~given_.best_effort
    np.testing.assert_array_equal(after.pod_cpu[others], before.pod_cpu[others])
    used = per_node(np.where(given_.best_effort, after.pod_cpu, 0.0), given_, 3)
    assert np.all(used <= limit + 1e-9)
    assert np.all(limit >= 16.0 * least - 1e-9)
    whole = used + others_of(after, given_, 3) + np.maximum(after.system_cpu, 0.2)
    assert np.all((whole <= 16.0 * share + 1e-9) | (limit <= max(16.0 * least, 0.02) + 1e-9) | ~held)


def test_a_node_without_suppression_is_left_alone() -> None:
    pods, nodes = pod_columns([Workload(tier=Tier.BATCH, cpu=16.0, best_effort=True)]), node_columns(1)
    before = usage_at(0, pods, nodes, UsageModel(), 1)
    after, _, held = suppressed(before, pods, nodes, columns(1, np.nan))
    assert (after.pod_cpu[0], bool(held[0])) == (before.pod_cpu[0], False)


def test_the_policies_of_nodes_are_those_that_are_there() -> None:
    thresholds = Thresholds()
    thresholds.replace_page([slo("a", enable=True), slo("b", enable=False), slo("c")], [])
    thresholds.end_replace("1")
    assert (thresholds.get("a"), thresholds.get("b"), thresholds.get("c")) == (
        Threshold(65, None, "cpuset"),
        None,
        None,
    )
    changed = slo(
        "b", enable=True, cpuSuppressThresholdPercent=50, cpuSuppressMinPercent=5, cpuSuppressPolicy="cfsQuota"
    )
    thresholds.apply(WatchEvent("MODIFIED", changed, "2"))
    assert thresholds.get("b") == Threshold(50, 5, "cfsQuota")
    thresholds.apply(WatchEvent("MODIFIED", slo("b"), "3"))
    thresholds.apply(WatchEvent("DELETED", slo("a", enable=True), "4"))
    assert not thresholds


def test_a_new_list_forgets_what_it_does_not_name() -> None:
    thresholds = Thresholds()
    thresholds.replace_page([slo("a", enable=True), slo("b", enable=True)], [])
    thresholds.end_replace("1")
    thresholds.begin_replace(authoritative=False)
    thresholds.replace_page([slo("b", enable=True)], [])
    thresholds.end_replace("2")
    assert (thresholds.get("a") is None, thresholds.get("b") is None) == (True, False)


def pod(name: str, qos: str, cpu: str, priority: int, **annotations: str) -> Pod:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    document = {
        "metadata": {
            "name": name,
            "namespace": "n",
            "uid": name,
            "labels": {"koordinator.sh/qosClass": qos},
            "annotations": annotations,
        },
        "spec": {"priority": priority, "containers": [{"name": "c", "image": "i", "resources": resources}]},
    }
    return convert(document, Pod)


def busy_node(percent: int) -> Population:
    """8 CPUs, of which one pod of each class would use 4."""
    thresholds = Thresholds()
    wanted = slo("small-0", enable=True, cpuSuppressThresholdPercent=percent, cpuSuppressPolicy="cfsQuota")
    thresholds.apply(WatchEvent("ADDED", wanted, "1"))
    population = Population(default_scenario().usage, 7, 15.0, thresholds)
    for node in expand(scale(default_scenario(), 2)):
        population.add_node(node)
    for each in (pod("job", "BE", "4", 5500), pod("web", "LS", "4", 9500, **{BEHAVIOUR_ANNOTATION: "batch"})):
        population.start_pod("small-0", profile_of(each), -1e6)
    population.sample(0.0)
    return population


def test_the_report_says_to_how_much_they_are_held_down_and_why() -> None:
    population = busy_node(65)
    status, other = node_metric_statuses(population, population.nodes, CollectPolicy(), 0.0, NOON)
    job, web = status["podsMetric"]
    said = job["extensions"]["Object"]["suppression"]
    assert ("extensions" in web, other["podsMetric"]) == (False, [])
    assert (said["policy"], said["since"]) == ("cfsQuota", "2026-01-01T12:00:00Z")
    assert said["why"].startswith("65 % of 8 CPUs, less ")
    assert float(job["podUsage"]["resources"]["cpu"].removesuffix("m")) / 1000 == pytest.approx(said["cpus"], abs=0.01)
    # Less than 65 % of 8, by what the system does not use of what is reserved for it.
    used = float(status["nodeMetric"]["nodeUsage"]["resources"]["cpu"].removesuffix("m"))
    assert 5000 < used <= 5200


def test_nothing_is_said_where_there_is_enough() -> None:
    (status,) = node_metric_statuses(busy_node(100), ["small-0"], CollectPolicy(), 0.0, NOON)
    assert all("extensions" not in each for each in status["podsMetric"])


@pytest.mark.parametrize(
    ("said", "tier"), [("batch", Tier.BATCH), ("idle", Tier.BEST_EFFORT), ("nonsense", Tier.LATENCY_SENSITIVE)]
)
def test_a_pod_behaves_as_its_annotation_says(said: str, tier: Tier) -> None:
    assert profile_of(pod("web", "LS", "1", 9500, **{BEHAVIOUR_ANNOTATION: said})).tier is tier
