"""CPU suppress: its budget, its bounds, its steps, and what it gives back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.koordlet.enforce.executor.desired_settings import Priority
from koordinator.koordlet.enforce.strategies.cpu_suppress import (
    LEAST_CPUS,
    LEAST_QUOTA,
    choose_cpus,
    decide,
    next_cpu_count,
    next_quota,
)
from koordinator.koordlet.enforce.strategies.snapshot import Decision
from koordinator.node.kernel_files import CPU_QUOTA, CPUSET, KernelFile, Value
from tests.koordlet.enforce.strategies.qos_fixtures import (
    BEST_EFFORT,
    best_effort,
    node,
    pod_usage,
    policy,
    snapshot,
    suppression,
    topology,
)


def value(decision: Decision, file: KernelFile, folder: str = BEST_EFFORT) -> Value | None:
    assert decision.settings is not None
    found = [each.value for each in decision.settings if (each.target.file, each.target.folder) == (file, folder)]
    assert len(found) <= 1
    return found[0] if found else None


def test_best_effort_pods_get_what_is_left_below_the_threshold() -> None:
    """8 CPUs, 65 %, 2 of them used: 3.2 are left."""
    assert value(decide(snapshot()), CPU_QUOTA) == 320_000


def test_what_the_system_uses_is_taken_off() -> None:
    assert value(decide(snapshot(node_cpu=3.0)), CPU_QUOTA) == 220_000


def test_what_the_node_reserves_is_taken_off_where_the_system_uses_less() -> None:
    assert value(decide(snapshot(node=node(allocatable=7))), CPU_QUOTA) == 220_000


def test_what_best_effort_pods_use_themselves_does_not_count() -> None:
    pods = (pod_usage("web", cpu=2.0), pod_usage("batch", "BE", cpu=4.0))
    assert value(decide(snapshot(pods=pods, node_cpu=6.0)), CPU_QUOTA) == 320_000


def with_program(cores: float, **program: Any) -> Decision:
    """Beside an online pod that uses 2 CPUs, a host application, and a node on which nothing else runs."""
    applications = [{"name": "nginx", **program}]
    threshold = {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"}
    given = policy(resourceUsedThresholdWithBE=threshold, hostApplications=applications)
    return decide(snapshot(policy=given, node_cpu=2.0 + cores, host_applications={"nginx": cores}))


@pytest.mark.parametrize("qos", ["LS", "BE"])
def test_what_host_applications_use_is_taken_off_once(qos: str) -> None:
    decision = with_program(1.0, qos=qos)
    assert value(decision, CPU_QUOTA) == 220_000
    assert decision.settings is not None
    assert (
        "less 2 CPUs of other pods, 1 CPU of host applications and 0 CPUs of the system" in decision.settings[0].reason
    )


def test_a_host_application_among_best_effort_pods_is_held_down_with_them() -> None:
    among = {"base": "KubepodsBesteffort", "relativePath": "batch"}
    assert value(with_program(1.0, qos="BE", cgroupPath=among), CPU_QUOTA) == 320_000


def test_a_host_application_that_was_not_measured_counts_as_the_systems() -> None:
    given = policy(
        resourceUsedThresholdWithBE={
            "enable": True,
            "cpuSuppressThresholdPercent": 65,
            "cpuSuppressPolicy": "cfsQuota",
        },
        hostApplications=[{"name": "nginx", "qos": "LS"}],
    )
    assert value(decide(snapshot(policy=given, node_cpu=3.0)), CPU_QUOTA) == 220_000


def test_the_floor_of_the_policy_holds_on_a_node_that_is_full() -> None:
    policy = suppression(cpuSuppressThresholdPercent=65, cpuSuppressMinPercent=25, cpuSuppressPolicy="cfsQuota")
    assert value(decide(snapshot(policy=policy, node_cpu=8.0)), CPU_QUOTA) == 200_000


@pytest.mark.parametrize("missing", ["node", "node_cpu", "policy"])
def test_without_a_figure_everything_stays_as_it_is(missing: str) -> None:
    assert decide(snapshot(**{missing: None})).settings is None


@pytest.mark.parametrize("switched_off", [{"is_enabled": False}, {}])
def test_where_it_is_off_everything_is_as_kubelet_has_it(switched_off: dict[str, Any]) -> None:
    policy = suppression(enable=bool(switched_off))
    decision = decide(snapshot(policy=policy), **switched_off)
    assert value(decision, CPU_QUOTA) == -1
    assert value(decision, CPUSET) == frozenset(range(8))
    assert decision.settings is not None
    released = {each.priority for each in decision.settings if each.target.file is CPUSET}
    assert released == {Priority.RELEASE}


def test_the_cpuset_policy_takes_whole_cores_and_lifts_the_quota() -> None:
    policy = suppression(cpuSuppressThresholdPercent=65, cpuSuppressPolicy="cpuset")
    decision = decide(snapshot(policy=policy))
    assert value(decision, CPU_QUOTA) == -1
    assert value(decision, CPUSET) == frozenset({0, 1, 4, 5})
    assert value(decision, CPUSET, f"{BEST_EFFORT}/pod0/c") == frozenset({0, 1, 4, 5})


@pytest.mark.parametrize("missing", ["the controller cpuset", "a CPU that is free"])
def test_the_cpuset_policy_lifts_the_quota_also_where_it_cannot_choose_cpus(missing: str) -> None:
    owner = pod_usage("db", "LSE", annotations={"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-7"}'})
    cgroups = best_effort(quota=130_000)
    given_ = {"best_effort": replace(cgroups, cpuset=None)} if "controller" in missing else {"pods": (owner,)}
    policy = suppression(cpuSuppressThresholdPercent=65, cpuSuppressPolicy="cpuset")
    decision = decide(snapshot(policy=policy, **{"best_effort": cgroups} | given_))
    assert (value(decision, CPU_QUOTA), value(decision, CPUSET)) == (-1, None)
    assert [BEST_EFFORT in problem.text for problem in decision.problems] == ([True] if "controller" in missing else [])


def test_cgroups_that_containers_have_made_are_narrowed_with_them() -> None:
    inner = f"{BEST_EFFORT}/pod0/c/docker/4b3c"
    for settings in (suppression(cpuSuppressThresholdPercent=65), suppression(enable=False)):
        cgroups = replace(best_effort(), folders=replace(best_effort().folders, inner=(inner,)))
        decision = decide(snapshot(policy=settings, best_effort=cgroups))
        assert value(decision, CPUSET, inner) == value(decision, CPUSET, f"{BEST_EFFORT}/pod0/c")


def test_cpus_of_exclusive_pods_are_left_alone() -> None:
    owner = pod_usage(
        "db", "LSE", cpu=0.0, annotations={"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-3"}'}
    )
    policy = suppression(cpuSuppressThresholdPercent=100, cpuSuppressPolicy="cpuset")
    cpus = value(decide(snapshot(policy=policy, pods=(owner,), node_cpu=0.0)), CPUSET)
    assert cpus == frozenset({4, 5, 6, 7})


@pytest.mark.parametrize("enable", [True, False])
def test_cpus_that_pods_keep_off_are_left_alone(enable: bool) -> None:
    policy = suppression(enable=enable, cpuSuppressThresholdPercent=100, cpuSuppressPolicy="cpuset")
    given = snapshot(policy=policy, pods=(pod_usage("web"),), node_cpu=0.0, kept_cpus=frozenset({0, 1}))
    assert value(decide(given), CPUSET) == frozenset(range(2, 8))


@pytest.mark.parametrize(("enable", "expected"), [(True, frozenset({4, 5})), (False, frozenset({2, 3, 4, 5, 6}))])
def test_only_cpus_of_the_folder_of_all_pods_are_chosen(enable: bool, expected: frozenset[int]) -> None:
    """The kernel gives a cgroup all CPUs of its parent if it has none of them itself."""
    policy = suppression(enable=enable, cpuSuppressThresholdPercent=10, cpuSuppressPolicy="cpuset")
    cgroups = replace(best_effort(), available=frozenset({2, 3, 4, 5, 6}))
    assert value(decide(snapshot(policy=policy, best_effort=cgroups)), CPUSET) == expected


def test_under_kubelets_static_policy_only_containers_are_narrowed() -> None:
    policy = suppression(cpuSuppressThresholdPercent=65, cpuSuppressPolicy="cpuset")
    decision = decide(snapshot(policy=policy, cpu_manager_policy="static"))
    assert value(decision, CPUSET) == frozenset(range(8))
    assert value(decision, CPUSET, f"{BEST_EFFORT}/pod0/c") == frozenset({0, 1, 4, 5})


@pytest.mark.parametrize("enable", [True, False])
def test_no_best_effort_container_is_put_on_cpus_that_the_kubelet_has_given_to_a_pod(enable: bool) -> None:
    """What is above containers keeps them: the kubelet gives them to any container when that pod has ended, which a
    parent without them would refuse."""
    policy = suppression(enable=enable, cpuSuppressThresholdPercent=100, cpuSuppressPolicy="cpuset")
    given = {"cpu_manager_policy": "static", "kubelet_cpus": frozenset({0, 4})}
    decision = decide(snapshot(policy=policy, pods=(pod_usage("web"),), node_cpu=0.0, **given))
    assert value(decision, CPUSET, f"{BEST_EFFORT}/pod0/c") == frozenset({1, 2, 3, 5, 6, 7})
    assert value(decision, CPUSET) == value(decision, CPUSET, f"{BEST_EFFORT}/pod0") == frozenset(range(8))


budgets = st.integers(-100_000, 300_000)
quotas = st.one_of(st.just(-1), st.integers(LEAST_QUOTA, 12_800_000))


@given(budgets, quotas, st.integers(1, 128))
def test_the_quota_never_goes_below_its_floor_nor_above_the_budget_nor_up_by_more_than_a_step(
    budget: int, current: int, cores: int
) -> None:
    quota = next_quota(budget, current, cores)
    assert quota >= LEAST_QUOTA
    # A change of less than one percent of the node is not worth a write.
    assert quota <= max(budget * 100, LEAST_QUOTA) + cores * 1000
    if current != -1:
        assert quota - current <= cores * 100_000 * 0.1


@given(st.floats(-1, 1), quotas, st.integers(1, 128))
def test_under_constant_load_the_quota_settles(share: float, current: int, cores: int) -> None:
    """After ten steps of a tenth, and one that lowers it."""
    budget = round(share * cores * 1000)
    for _ in range(12):
        current = next_quota(budget, current, cores)
    assert next_quota(budget, current, cores) == current


@given(budgets, st.integers(0, 128), st.integers(1, 128), st.data())
def test_the_cpus_never_go_below_two_nor_above_what_is_there_nor_up_by_more_than_a_step(
    budget: int, current: int, cpus: int, data: st.DataObject
) -> None:
    eligible = data.draw(st.integers(0, cpus))
    count = next_cpu_count(budget, current, cpus, eligible)
    assert min(LEAST_CPUS, eligible, current + -(-cpus // 10)) <= count <= eligible
    assert count <= max(current + -(-cpus // 10), LEAST_CPUS)


@given(st.integers(0, 40), st.sampled_from([(8, 2, 2), (32, 2, 2), (6, 1, 2), (4, 2, 1)]))
def test_as_many_cpus_are_chosen_as_were_requested(count: int, shape: tuple[int, int, int]) -> None:
    assert len(choose_cpus(count, topology(*shape).cpus)) == min(count, shape[0])


def test_the_released_cpus_come_back_step_by_step() -> None:
    policy = suppression(cpuSuppressThresholdPercent=100, cpuSuppressPolicy="cpuset")
    pods = (pod_usage("web", cpu=0.0),)
    held = snapshot(policy=policy, pods=pods, node_cpu=0.0, best_effort=best_effort(cpus=2))
    assert len(value(decide(held), CPUSET) or ()) == 3  # type: ignore[arg-type]
