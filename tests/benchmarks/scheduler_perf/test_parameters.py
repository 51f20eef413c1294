from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scheduler_perf.operations import (
    AnyOperation,
    Barrier,
    CreateAny,
    CreateNodes,
    CreatePods,
    CreatePodSets,
    CreateResourceDriver,
    Sleep,
    UpdateAny,
)
from benchmarks.scheduler_perf.parameters import Parameters, operations_of, unsupported
from benchmarks.scheduler_perf.test_cases import Parameter, TestCase, Workload
from koordinator.base.errors import ConfigurationError


def case(*operations: AnyOperation, **params: Parameter) -> tuple[TestCase, Workload]:
    workload = Workload(name="w", params=params)
    return TestCase(name="Case", workload_template=list(operations), workloads=[workload]), workload


def resolved(*operations: AnyOperation, scale: float = 1.0, **params: Parameter) -> list[AnyOperation]:
    test_case, workload = case(*operations, **params)
    return operations_of(test_case, Parameters(workload, scale))


def counts(operations: list[AnyOperation]) -> list[int]:
    return [one.count for one in operations if isinstance(one, CreateNodes | CreatePods)]


def test_counts_come_from_parameters() -> None:
    found = resolved(CreateNodes(count_param="$nodes"), CreatePods(count_param="$pods"), nodes=5, pods=10)
    assert counts(found) == [5, 10]


def test_a_parameter_wins_over_a_count() -> None:
    assert counts(resolved(CreateNodes(count=2, count_param="$nodes"), nodes=5)) == [5]


def test_updates_have_counts_too() -> None:
    (found,) = resolved(UpdateAny(template_path="a", count_param="$pods"), pods=7)
    assert isinstance(found, UpdateAny)
    assert found.count == 7


def test_other_operations_stay_as_they_are() -> None:
    assert resolved(Barrier(), CreateAny(template_path="a")) == [Barrier(), CreateAny(template_path="a")]


def test_durations_come_from_parameters() -> None:
    assert resolved(Sleep(duration_param="$time"), time="10s") == [Sleep(duration="10s", duration_param="$time")]


def test_pod_sets_become_pods_in_each_namespace() -> None:
    found = resolved(
        CreatePodSets(count_param="$namespaces", namespace_prefix="ns", create_pods_op=CreatePods(count_param="$pods")),
        namespaces=2,
        pods=3,
    )
    assert [(one.namespace, one.count) for one in found if isinstance(one, CreatePods)] == [("ns-0", 3), ("ns-1", 3)]


def test_a_parameter_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"\$nodes"):
        resolved(CreateNodes(count_param="$nodes"))


@pytest.mark.parametrize("value", ["5", True, 5.5])
def test_a_count_is_a_whole_number(value: Parameter) -> None:
    with pytest.raises(ConfigurationError, match="int"):
        resolved(CreateNodes(count_param="$nodes"), nodes=value)


def test_a_parameter_that_nothing_uses_is_named() -> None:
    with pytest.raises(ConfigurationError, match="spare"):
        resolved(CreateNodes(count_param="$nodes"), nodes=1, spare=2)


@pytest.mark.parametrize("operation", [CreateResourceDriver(), CreatePods(steady_state_param="$steady")])
def test_what_is_not_supported_is_refused_plainly(operation: AnyOperation) -> None:
    with pytest.raises(ConfigurationError, match="is not supported"):
        resolved(operation)


def test_what_is_not_supported_is_known_before_it_runs() -> None:
    test_case, _ = case(CreateResourceDriver(), CreatePods(steady_state=True), Barrier())
    assert unsupported(test_case) == ["createResourceDriver", "steadyState"]


def test_scaling_rounds_nodes_up_and_pods_down() -> None:
    found = resolved(CreateNodes(count_param="$n"), CreatePods(count_param="$p"), scale=0.1, n=15, p=15)
    assert counts(found) == [2, 1]


def test_plain_counts_are_not_scaled() -> None:
    assert counts(resolved(CreateNodes(count=10), scale=0.1)) == [10]


@pytest.mark.parametrize("whole", [500, 100, 400, 1000])
def test_scaling_by_a_tenth_is_exact(whole: int) -> None:
    assert counts(resolved(CreateNodes(count_param="$n"), scale=0.1, n=whole)) == [whole // 10]


def test_the_scaled_values_are_reported() -> None:
    test_case, workload = case(CreateNodes(count_param="$nodes"), nodes=50)
    parameters = Parameters(workload, 0.5)
    operations_of(test_case, parameters)
    assert parameters.taken == {"nodes": 25}


@given(whole=st.integers(0, 10**6), scale=st.floats(0.001, 1), nodes=st.booleans())
def test_scaling_keeps_something_and_never_adds(whole: int, scale: float, nodes: bool) -> None:
    operation = CreateNodes(count_param="$n") if nodes else CreatePods(count_param="$n")
    (count,) = counts(resolved(operation, scale=scale, n=whole))
    assert min(whole, 1) <= count <= whole
