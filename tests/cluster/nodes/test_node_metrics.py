"""NodeMetric statuses: windows, cold start, formats and order."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from koordinator.api.codec import convert
from koordinator.api.nodemetric import NodeMetricSpec, NodeMetricStatus
from koordinator.api.priority import PriorityClass
from koordinator.api.qos import QoSClass
from koordinator.api.quantity import Quantity
from koordinator.cluster.nodes.node_metrics import clearing, node_metric_statuses
from koordinator.cluster.nodes.node_objects import expand
from koordinator.cluster.nodes.population import Population
from koordinator.cluster.nodes.scenario import default_scenario, scale
from koordinator.cluster.nodes.usage import PodProfile, Tier, identity
from koordinator.model.node_metric import (
    DEFAULT_DURATIONS,
    CollectPolicy,
    collect_policy,
    resource_map,
)

_UPDATED = datetime(2026, 1, 1, 12, 0, 0, 999_999, tzinfo=UTC)
_POLICY = CollectPolicy()


def _profile(name: str, tier: Tier = Tier.LATENCY_SENSITIVE) -> PodProfile:
    service = tier is Tier.LATENCY_SENSITIVE
    return PodProfile(
        uid=name,
        id=identity(name),
        namespace="web" if service else "batch",
        name=name,
        priority=PriorityClass.PROD if service else PriorityClass.BATCH,
        qos=QoSClass.LS if service else QoSClass.BE,
        tier=tier,
        cpu_request=2.0,
        cpu_limit=math.inf,
        memory_request=2.0**30,
        memory_limit=math.inf,
    )


def _population(*pods: PodProfile, samples: int = 20) -> Population:
    """Two nodes, the pods on the first, sampled every 15 seconds up to time 0."""
    population = Population(default_scenario().usage, seed=7, sample_interval=15.0)
    for node in expand(scale(default_scenario(), 2)):
        population.add_node(node)
    for pod in pods:
        population.start_pod(population.nodes[0], pod, -1e6)
    for index in range(samples):
        population.sample(15.0 * (index + 1 - samples))
    return population


def _statuses(population: Population, policy: CollectPolicy = _POLICY) -> list[dict[str, Any]]:
    return node_metric_statuses(population, population.nodes, policy, 0.0, _UPDATED)


def test_node_usage_is_system_and_pods_within_rounding() -> None:
    status = _statuses(_population(_profile("b"), _profile("a"), _profile("c", Tier.BATCH)))[0]
    parts = [pod["podUsage"] for pod in status["podsMetric"]] + [status["nodeMetric"]["systemUsage"]]
    for name, unit in (("cpu", 1000), ("memory", 1)):
        total = sum(Quantity.parse(part["resources"][name]).nanos for part in parts) * unit // 10**9
        node = Quantity.parse(status["nodeMetric"]["nodeUsage"]["resources"][name]).nanos * unit // 10**9
        assert total <= node <= total + len(parts)


def test_pods_are_sorted_by_namespace_and_name() -> None:
    status = _statuses(_population(_profile("b"), _profile("a"), _profile("c", Tier.BATCH)))[0]
    assert [(pod["namespace"], pod["name"]) for pod in status["podsMetric"]] == [
        ("batch", "c"),
        ("web", "a"),
        ("web", "b"),
    ]
    assert next((pod["priority"], pod["qos"]) for pod in status["podsMetric"]) == ("koord-batch", "BE")


def test_each_node_has_its_own_pods() -> None:
    first, second = _statuses(_population(_profile("a")))
    assert (len(first["podsMetric"]), second["podsMetric"]) == (1, [])


def test_a_pod_without_samples_is_left_out() -> None:
    population = _population(_profile("a"))
    population.start_pod(population.nodes[0], _profile("late"), 0.0)
    assert [pod["name"] for pod in _statuses(population)[0]["podsMetric"]] == ["a"]


def test_a_finished_pod_stays_while_its_samples_are_in_the_window() -> None:
    population = _population(_profile("a"))
    population.finish_pod("a")
    population.sample(15.0)
    [still] = node_metric_statuses(population, population.nodes[:1], _POLICY, 15.0, _UPDATED)
    population.sample(400.0)
    [gone] = node_metric_statuses(population, population.nodes[:1], _POLICY, 400.0, _UPDATED)
    assert (len(still["podsMetric"]), len(gone["podsMetric"])) == (1, 0)


def test_a_row_that_was_freed_does_not_show_its_old_samples() -> None:
    population = _population(_profile("a"))
    population.remove_pod("a")
    population.start_pod(population.nodes[1], _profile("b"), 0.0)
    assert [status["podsMetric"] for status in _statuses(population)] == [[], []]


def test_average_and_percentiles_are_those_of_the_samples() -> None:
    population = _population(_profile("a"), samples=120)
    row = population.node_row(population.nodes[0])
    for duration in DEFAULT_DURATIONS:
        seconds = duration.total_seconds()
        since = -seconds
        window = population.node_samples.window(np.array([row]), since, 0.0)
        values = sorted(window.cpu[:, 0])
        expected = {"avg": sum(values) / len(values)}
        expected |= {f"p{p}": values[max(len(values) * p // 100 - 1, 0)] for p in (50, 90, 95, 99)}
        usages = _statuses(population)[0]["nodeMetric"]["aggregatedNodeUsages"]
        usage = usages[DEFAULT_DURATIONS.index(duration)]["usage"]
        shown = {name: Quantity.parse(amount["resources"]["cpu"]).milli for name, amount in usage.items()}
        assert shown == {name: int(value * 1000 + 1e-9) for name, value in expected.items()}


@pytest.mark.parametrize(
    ("samples", "warm"),
    [(10, [False, False, False]), (11, [True, False, False]), (21, [True, True, False]), (61, [True, True, True])],
)
def test_a_window_is_reported_once_half_of_it_has_samples(samples: int, warm: list[bool]) -> None:
    aggregated = _statuses(_population(samples=samples))[0]["nodeMetric"]["aggregatedNodeUsages"]
    assert [bool(entry["usage"]["p95"]) for entry in aggregated] == warm
    assert [entry["duration"] for entry in aggregated] == ["5m0s", "10m0s", "30m0s"]


def test_no_policy_means_no_percentiles() -> None:
    status = _statuses(_population(), CollectPolicy(durations=None))[0]
    assert status["nodeMetric"]["aggregatedNodeUsages"] is None


def test_nothing_was_sampled_yet() -> None:
    status = _statuses(_population(samples=0))[0]
    assert (status["nodeMetric"]["nodeUsage"], status["podsMetric"]) == ({}, [])


def test_the_document_is_a_node_metric_status() -> None:
    status = convert(_statuses(_population(_profile("a")))[0], NodeMetricStatus)
    assert status.update_time == _UPDATED.replace(microsecond=0)


@pytest.mark.parametrize(
    ("cores", "memory", "expected"),
    [
        (1.5, 1024.0**3, {"cpu": "1500m", "memory": "1Gi"}),
        (2.0, 1024.0**2 * 3 + 0.9, {"cpu": "2", "memory": "3Mi"}),
        (0.0019, 1500.0, {"cpu": "1m", "memory": "1500"}),
        (0.0, 0.0, {"cpu": "0", "memory": "0"}),
    ],
)
def test_usage_is_cut_to_milli_cpu_and_bytes(cores: float, memory: float, expected: dict[str, str]) -> None:
    assert resource_map(cores, memory) == {"resources": expected}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, CollectPolicy()),
        ({"metricCollectPolicy": {}}, CollectPolicy()),
        ({"metricCollectPolicy": {"aggregateDurationSeconds": 5}}, CollectPolicy(aggregate_seconds=60)),
        ({"metricCollectPolicy": {"reportIntervalSeconds": 5}}, CollectPolicy(report_seconds=30)),
        (
            {"metricCollectPolicy": {"nodeAggregatePolicy": {"durations": ["1m0s"]}}},
            CollectPolicy(durations=(timedelta(minutes=1),)),
        ),
    ],
)
def test_policy_has_defaults_and_least_values(spec: dict[str, Any], expected: CollectPolicy) -> None:
    assert collect_policy(convert(spec, NodeMetricSpec)) == expected


def test_windows_end_at_the_last_sample_since_fast_simulated_time_runs_ahead_of_it() -> None:
    population = _population(_profile("web-0"))
    (late,) = node_metric_statuses(population, [population.nodes[0]], _POLICY, 400.0, _UPDATED)
    (at_once,) = node_metric_statuses(population, [population.nodes[0]], _POLICY, 0.0, _UPDATED)
    assert late == at_once
    assert "cpu" in late["nodeMetric"]["nodeUsage"]["resources"]


def test_a_merge_patch_takes_back_a_usage_that_is_no_longer_known() -> None:
    assert clearing({"nodeMetric": {"nodeUsage": {}, "systemUsage": {"resources": {"cpu": "1"}}}}) == {
        "nodeMetric": {
            "nodeUsage": {"resources": None, "devices": None},
            "systemUsage": {"resources": {"cpu": "1"}},
        }
    }
