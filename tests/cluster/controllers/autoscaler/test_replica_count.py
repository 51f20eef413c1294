"""How many replicas the usage of pods asks for."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.pod import Container, ResourceRequirements
from koordinator.api.quantity import Quantity
from koordinator.cluster.controllers.autoscaler.replica_count import for_average, for_utilization
from koordinator.cluster.controllers.autoscaler.usage import MetricError, requests_of, samples_of
from tests.cluster.controllers.autoscaler.autoscaler_objects import in_phase, running, usage, usage_in, uses
from tests.cluster.controllers.objects import ago

_THREE = [running("a"), running("b"), running("c")]


@pytest.mark.parametrize(
    ("cpu", "percent", "replicas", "utilization"),
    [
        ([100, 100, 100], 50, 6, 100),
        ([54, 54, 54], 50, 3, 54),
        ([46, 46, 46], 50, 3, 46),
        ([56, 56, 56], 50, 4, 56),
        ([10, 20, 30], 50, 2, 20),
        ([0, 0, 0], 50, 0, 0),
    ],
)
def test_the_share_of_the_requests_decides(cpu: list[int], percent: int, replicas: int, utilization: int) -> None:
    found = for_utilization(usage(_THREE, cpu), requests_of(_THREE, "cpu"), percent)
    assert (found.replicas, found.utilization, found.average.milli) == (replicas, utilization, sum(cpu) // 3)


def test_a_pod_without_metrics_is_assumed_to_use_its_request_when_fewer_would_do() -> None:
    requests = requests_of(_THREE, "cpu")
    assert for_utilization(usage(_THREE, [10, 10]), requests, 50).replicas == 3
    assert for_utilization(usage(_THREE, [10, 10]), requests, 80).replicas == 2


def test_a_pod_without_metrics_is_assumed_to_use_nothing_when_more_are_needed() -> None:
    assert for_utilization(usage(_THREE, [100, 100]), requests_of(_THREE, "cpu"), 50).replicas == 4


def test_pods_that_are_not_ready_slow_growth_and_do_not_count_otherwise() -> None:
    pods = [running("a"), running("b"), running("c", ready=False, age=60)]
    requests = requests_of(pods, "cpu")
    assert for_utilization(usage(pods, [100, 100, 999]), requests, 50).replicas == 4
    assert for_utilization(usage(pods, [20, 20, 999]), requests, 50).replicas == 1
    pending = [running("a"), running("b"), in_phase(running("c"), "Pending")]
    assert for_utilization(usage(pending, [100, 100]), requests, 50).replicas == 4


def test_the_cpu_usage_of_a_starting_pod_counts_once_it_was_ready_for_a_whole_window() -> None:
    fresh = running("c", age=35)
    pods = [running("a"), running("b"), fresh]
    requests = requests_of(pods, "cpu")
    assert for_utilization(usage(pods, [100, 100, 400]), requests, 50).replicas == 4
    older = [*pods[:2], running("c", age=50)]
    assert for_utilization(usage(older, [100, 100, 400]), requests, 50).replicas == 12
    by_memory = for_utilization(usage(pods, [100, 100, 400], resource="memory"), requests_of(pods, "memory"), 50)
    assert by_memory.replicas == 12


def test_a_pod_that_was_ready_once_counts_though_it_is_not_now() -> None:
    failed = running("c")
    condition = msgspec.structs.replace(failed.status.conditions[0], status="False", last_transition_time=ago(60))
    failed = msgspec.structs.replace(failed, status=msgspec.structs.replace(failed.status, conditions=[condition]))
    pods = [running("a"), running("b"), failed]
    assert for_utilization(usage(pods, [100, 100, 100]), requests_of(pods, "cpu"), 50).replicas == 6


@pytest.mark.parametrize(("target", "replicas"), [(50, 6), (95, 3), (200, 2)])
def test_the_average_of_the_pods_decides(target: int, replicas: int) -> None:
    found = for_average(usage(_THREE, [100, 100, 100]), target)
    assert (found.replicas, found.average.milli, found.utilization) == (replicas, 100, None)


def test_what_makes_a_count_impossible_is_named() -> None:
    with pytest.raises(MetricError, match="no pods returned by selector"):
        for_average(usage_in([], [uses("a", 1)]), 1)
    with pytest.raises(MetricError, match="did not receive metrics for targeted pods"):
        for_average(usage([running("a", ready=False, age=60)], [5]), 1)
    with pytest.raises(MetricError, match="missing request for cpu in container main of Pod b"):
        requests_of([running("a"), running("b", request=None)], "cpu")
    with pytest.raises(MetricError, match="no metrics returned from resource metrics API"):
        samples_of([], "cpu")
    with pytest.raises(MetricError, match="container other not present in metrics for pod default/a"):
        samples_of([uses("a", 1)], "cpu", "other")


def test_the_requests_are_of_the_pod_or_of_its_containers_with_sidecars() -> None:
    requested = ResourceRequirements(requests={"cpu": Quantity.from_milli(30)})
    sidecar = Container(name="side", restart_policy="Always", resources=requested)
    start = Container(name="start", resources=requested)
    pod = running("a", init_containers=[sidecar, start])
    assert requests_of([pod], "cpu") == {"a": 130}
    assert requests_of([pod], "cpu", "side") == {"a": 30}
    whole = running("a", resources=ResourceRequirements(requests={"cpu": Quantity.from_milli(500)}))
    assert requests_of([whole], "cpu") == {"a": 500}


_POD = st.tuples(st.sampled_from(["known", "missing", "unready"]), st.integers(0, 500))


@given(st.lists(_POD, min_size=1, max_size=12), st.integers(1, 200))
def test_pods_of_which_little_is_known_never_turn_or_widen_a_change(made: list[tuple[str, int]], percent: int) -> None:
    pods = [running(str(n), ready=kind != "unready", age=60) for n, (kind, _) in enumerate(made)]
    known = [n for n, (kind, _) in enumerate(made) if kind == "known"]
    if not known:
        return
    metrics = [uses(str(n), amount) for n, (kind, amount) in enumerate(made) if kind != "missing"]
    found = for_utilization(usage_in(pods, metrics), requests_of(pods, "cpu"), percent)
    ratio = sum(made[n][1] for n in known) * 100 // (100 * len(known)) / percent
    if ratio > 1.0:
        assert len(pods) <= found.replicas <= max(len(pods), math.ceil(ratio * len(pods)))
    else:
        assert found.replicas <= len(pods)
