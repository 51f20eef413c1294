"""The usage model: bounds, determinism, and who is served first."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.cluster.nodes.scenario import BatchUsage, UsageModel
from koordinator.cluster.nodes.usage import Tier, usage_at
from tests.cluster.nodes.clusters import GIBI, Workload, node_columns, pod_columns, workloads
from tests.examples import examples

_MODEL = UsageModel()
_DAY = 86_400.0
_TOLERANCE = 1 + 1e-9

times = st.floats(0, 200_000)


@settings(max_examples=examples(40))
@given(pods=workloads(), time=times, seed=st.integers())
def test_no_node_uses_more_than_it_has(pods: list[Workload], time: float, seed: int) -> None:
    columns, nodes = pod_columns(pods), node_columns(3)
    cpu, memory = usage_at(time, columns, nodes, _MODEL, seed).node_totals(columns)
    assert (cpu <= nodes.cpu * _TOLERANCE).all()
    assert (memory <= nodes.memory * _TOLERANCE).all()


@settings(max_examples=examples(40))
@given(pods=workloads(), time=times)
def test_no_pod_uses_less_than_nothing_or_more_than_its_limit(pods: list[Workload], time: float) -> None:
    columns = pod_columns(pods)
    usage = usage_at(time, columns, node_columns(3), _MODEL, 1)
    for used, limit in ((usage.pod_cpu, columns.cpu_limit), (usage.pod_memory, columns.memory_limit)):
        present = ~np.isnan(used)
        assert (used[present] >= 0).all()
        assert (used[present] <= limit[present]).all()


@settings(max_examples=examples(40))
@given(pods=workloads(), time=times)
def test_pods_and_system_add_up_to_the_node(pods: list[Workload], time: float) -> None:
    columns = pod_columns(pods)
    usage = usage_at(time, columns, node_columns(3), _MODEL, 1)
    cpu, _ = usage.node_totals(columns)
    for node in range(3):
        own = sum(used for used, pod in zip(usage.pod_cpu, pods, strict=True) if pod.node == node and used == used)
        assert cpu[node] == pytest.approx(usage.system_cpu[node] + own)


@settings(max_examples=examples(40))
@given(pods=workloads(), time=times)
def test_a_pod_has_usage_from_its_start_on(pods: list[Workload], time: float) -> None:
    usage = usage_at(time, pod_columns(pods), node_columns(3), _MODEL, 1)
    assert [not math.isnan(used) for used in usage.pod_cpu] == [pod.started <= time for pod in pods]


@settings(max_examples=examples(40))
@given(pods=workloads(), time=times, seed=st.integers())
def test_the_same_arguments_give_the_same_usage(pods: list[Workload], time: float, seed: int) -> None:
    first, second = (usage_at(time, pod_columns(pods), node_columns(3), _MODEL, seed) for _ in range(2))
    assert np.array_equal(first.pod_cpu, second.pod_cpu, equal_nan=True)
    assert np.array_equal(first.pod_memory, second.pod_memory, equal_nan=True)


@given(time=times)
def test_neighbours_change_nothing_while_there_is_capacity(time: float) -> None:
    alone = usage_at(time, pod_columns([Workload(uid="a")]), node_columns(1), _MODEL, 1)
    together = usage_at(time, pod_columns([Workload(uid="b"), Workload(uid="a")]), node_columns(1), _MODEL, 1)
    assert alone.pod_cpu[0] == together.pod_cpu[1]


def test_seeds_give_different_days() -> None:
    pods, nodes = pod_columns([Workload()]), node_columns(1)
    assert usage_at(0, pods, nodes, _MODEL, 1).pod_cpu[0] != usage_at(0, pods, nodes, _MODEL, 2).pod_cpu[0]


def test_services_use_10_to_20_percent_of_their_requests_over_a_day() -> None:
    pods, nodes = pod_columns([Workload(cpu=1.0, node=index) for index in range(50)]), node_columns(50)
    moments = [usage_at(time, pods, nodes, _MODEL, 3).pod_cpu for time in np.arange(0, _DAY, 600)]
    means = np.mean(moments, axis=0)
    assert means.min() > 0.10
    assert means.max() < 0.21


def test_services_are_busier_in_the_afternoon_than_at_night() -> None:
    pods, nodes = pod_columns([Workload(cpu=1.0, node=index) for index in range(50)]), node_columns(50)
    night, afternoon = (usage_at(hour * 3600, pods, nodes, _MODEL, 3).pod_cpu.sum() for hour in (2.5, 14.5))
    assert afternoon > 1.5 * night


def test_services_have_spikes() -> None:
    pods, nodes = pod_columns([Workload(cpu=1.0)]), node_columns(1)
    day = [usage_at(time, pods, nodes, _MODEL, 3).pod_cpu[0] for time in np.arange(0, _DAY, 120)]
    assert max(day) > 1.3 * np.percentile(day, 95)


def test_batch_pods_run_near_their_limit_while_cpu_is_free() -> None:
    pods = pod_columns([Workload(tier=Tier.BATCH, cpu=2.0, cpu_limit=4.0)])
    used = usage_at(0, pods, node_columns(1), _MODEL, 1).pod_cpu[0]
    assert 0.8 * 4.0 < used <= 4.0


def test_services_keep_what_they_use_and_batch_is_squeezed_when_the_node_is_full() -> None:
    service = Workload(cpu=40.0, uid="service")
    alone = usage_at(0, pod_columns([service]), node_columns(1), _MODEL, 1)
    crowd = [service, *(Workload(tier=Tier.BATCH, cpu=8.0, uid=f"batch-{index}") for index in range(4))]
    crowded = usage_at(0, pod_columns(crowd), node_columns(1), _MODEL, 1)
    assert crowded.pod_cpu[0] == alone.pod_cpu[0]
    assert crowded.pod_cpu.sum() + crowded.system_cpu[0] == pytest.approx(16.0)


@given(percent=st.floats(30, 100))
def test_batch_stays_below_the_share_of_the_node_that_it_may_have(percent: float) -> None:
    model = msgspec.structs.replace(_MODEL, batch=BatchUsage(node_limit_percent=percent))
    pods = pod_columns([Workload(tier=Tier.BATCH, cpu=16.0), Workload(tier=Tier.BATCH, cpu=16.0)])
    cpu, _ = usage_at(0, pods, node_columns(1), model, 1).node_totals(pods)
    assert cpu[0] == pytest.approx(16.0 * percent / 100)


def test_batch_memory_grows_to_a_plateau_below_the_limit() -> None:
    pods = pod_columns([Workload(tier=Tier.BATCH, memory=4 * GIBI, memory_limit=4 * GIBI, started=0.0)])
    first, growing, later, last = (
        usage_at(time, pods, node_columns(1), _MODEL, 1).pod_memory[0] for time in (0, 60, 900, 3600)
    )
    assert first < growing < later
    assert later == pytest.approx(last, rel=0.1)
    assert last < 4 * GIBI


def test_a_pod_that_requests_nothing_uses_little() -> None:
    pods = pod_columns([Workload(tier=Tier.BEST_EFFORT, cpu=0.0, memory=0.0)])
    usage = usage_at(0, pods, node_columns(1), _MODEL, 1)
    assert 0 < usage.pod_cpu[0] < 0.1
    assert 0 < usage.pod_memory[0] < GIBI / 4
