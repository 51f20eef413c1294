"""CPUSetAllocator: whose CPUs a container gets, who is not throttled, and what is left when it is off."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.koordlet.enforce.hooks import cpuset_allocator
from koordinator.koordlet.enforce.hooks.contexts import Change, HookError, PodContext
from koordinator.koordlet.enforce.hooks.rules import CPUPools
from koordinator.koordlet.pods.kubelet_bandwidths import Bandwidth
from tests.koordlet.enforce.hooks.hook_fixtures import POOLS, rules, running, starting, status

ALL_SHARED = {0, 1, 2, 4, 5, 6}


def of_container(pod: PodContext, **given: Any) -> Change | None:
    return cpuset_allocator.container(pod, pod.containers[0], rules(**given))


def cpus(pod: PodContext, **given: Any) -> Any:
    change = of_container(pod, **given)
    return None if change is None else change.cpuset


def on_node(node: int, **resources: str) -> dict[str, str]:
    return status(numaNodeResources=[{"node": node, "resources": resources or {"cpu": "1"}}])


def test_a_pod_with_cpus_of_its_own_has_these_and_no_quota() -> None:
    pod = running(qos="LSR", annotations=status(cpuset="2-3"))
    change = of_container(pod)
    assert change is not None
    assert (change.cpuset, change.cpu_quota) == (frozenset({2, 3}), -1)
    pod_change = cpuset_allocator.pod(pod, rules())
    assert pod_change is not None
    assert pod_change.cpu_quota == -1


def test_its_quota_stays_where_the_flag_says_so() -> None:
    pod = running(qos="LSR", annotations=status(cpuset="2-3"))
    change = of_container(pod, unsets_quota=False)
    assert change is not None
    assert (change.cpuset, change.cpu_quota) == (frozenset({2, 3}), None)
    assert cpuset_allocator.pod(pod, rules(unsets_quota=False)) is None


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (running(qos="LS"), ALL_SHARED),
        (running(qos=""), ALL_SHARED),
        (running(qos="LS", annotations=on_node(1)), {4, 5, 6}),
        (running(qos="LS", annotations=on_node(1, memory="1Gi")), ALL_SHARED),
        (running(qos="BE"), set()),
        (running(qos="BE", annotations=on_node(1, **{"kubernetes.io/batch-cpu": "500"})), set()),
        (running(qos="SYSTEM"), ALL_SHARED),
    ],
)
def test_pods_without_share_what_is_left(pod: PodContext, expected: set[int]) -> None:
    assert cpus(pod) == expected


def test_best_effort_pods_stay_on_their_node_where_their_cpus_are_managed() -> None:
    pod = running(qos="BE", annotations=on_node(1))
    assert cpus(pod, shares_best_effort_pools=True) == {4, 5, 6, 7}


def test_the_systems_pods_have_the_systems_cpus() -> None:
    assert cpus(running(qos="SYSTEM"), pools=CPUPools(POOLS.shared, system=frozenset({7}))) == {7}


def test_kubelets_static_manager_is_left_alone() -> None:
    static = CPUPools(POOLS.shared, is_kubelet_static=True)
    assert cpus(running(qos=""), pools=static) is None
    assert cpus(running(qos="LS"), pools=static) == ALL_SHARED


def test_before_the_topology_is_known_only_allocations_count() -> None:
    assert cpus(running(qos="LS"), pools=None) is None
    assert cpus(running(qos="LSR", annotations=status(cpuset="1")), pools=None) == {1}


@pytest.mark.parametrize("text", ["{", '{"cpuset":"a-b"}'])
def test_a_status_that_is_not_valid_names_itself(text: str) -> None:
    pod = starting("LSR", **{"scheduling.koordinator.sh/resource-status": text})
    with pytest.raises(HookError, match=r"scheduling\.koordinator\.sh/resource-status"):
        cpuset_allocator.pod(pod, rules())


def test_when_it_is_off_pods_have_all_cpus_and_their_limits_again() -> None:
    pod = running(qos="LSR", annotations=status(cpuset="2"), resources={"cpu": "1", "memory": "1Gi"})
    assert pod.containers[0].bandwidth == Bandwidth(100_000)
    change = cpuset_allocator.release_container(pod, pod.containers[0], rules())
    assert change is not None
    assert (change.cpuset, change.cpu_quota) == (frozenset(range(8)), 100_000)
    best_effort = running(qos="BE")
    assert cpuset_allocator.release_container(best_effort, best_effort.containers[0], rules()) is None
