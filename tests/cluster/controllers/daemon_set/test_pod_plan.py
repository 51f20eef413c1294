"""Which nodes have a pod of a DaemonSet, and how its pods are replaced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.cluster.controllers.daemon_set.new_pod import Fitness, fitness_of, new_pod
from koordinator.cluster.controllers.daemon_set.pod_plan import limits_of, plan_pods
from koordinator.cluster.controllers.daemon_set.status import new_status
from tests.cluster.controllers.daemon_set.daemon_set_in_memory import DaemonSetInMemory, daemon_set_with, node_with

FITS = Fitness(should_run=True, may_stay=True)
MAY_STAY = Fitness(should_run=False, may_stay=True)
NOT_AT_ALL = Fitness(should_run=False, may_stay=False)
TEMPLATE = {"spec": {"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "main"}]}}


def cluster_with(count: int, surge: int | str = 0, unavailable: int | str = 1) -> DaemonSetInMemory:
    """With a pod that is ready on each node."""
    nodes = [node_with(f"node-{number}") for number in range(count)]
    cluster = DaemonSetInMemory(daemon_set_with(surge, unavailable), nodes)
    cluster.run_pass()
    cluster.run_pods()
    return cluster


@pytest.mark.parametrize(
    ("taints", "fitness"),
    [
        ([], FITS),
        ([("dedicated", "NoSchedule")], MAY_STAY),
        ([("dedicated", "NoExecute")], NOT_AT_ALL),
        ([("dedicated", "PreferNoSchedule")], FITS),
        ([("node.kubernetes.io/unschedulable", "NoSchedule"), ("node.kubernetes.io/not-ready", "NoExecute")], FITS),
    ],
)
def test_the_taints_of_a_node(taints: list[tuple[str, str]], fitness: Fitness) -> None:
    assert fitness_of(daemon_set_with())(node_with("node", *taints)) == fitness


def test_the_labels_of_a_node() -> None:
    fits = fitness_of(daemon_set_with(template=TEMPLATE))
    assert (fits(node_with("fast", disk="ssd")), fits(node_with("slow"))) == (FITS, NOT_AT_ALL)


def test_the_pod_is_bound_to_its_node_alone() -> None:
    spec = new_pod(daemon_set_with(), "node-1", "abc")["spec"]
    field = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required == {"nodeSelectorTerms": [{"matchFields": [field]}]}


def test_each_node_gets_one_pod() -> None:
    cluster = cluster_with(3)
    assert (len(cluster.pods), cluster.unavailable) == (3, 0)
    assert cluster.run_pass().create == []


def test_a_node_that_no_longer_fits_loses_its_pod() -> None:
    cluster = cluster_with(2)
    cluster.nodes[0] = node_with("node-0", ("dedicated", "NoExecute"))
    assert len(cluster.run_pass().delete) == 1


def test_pods_for_nodes_that_are_gone_are_deleted() -> None:
    cluster = cluster_with(2)
    del cluster.nodes[0]
    assert len(cluster.run_pass().delete) == 1


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_is_deleted(phase: str) -> None:
    cluster = cluster_with(1)
    cluster.set_status("pod-1", phase, ready=False)
    ((node, pod),) = cluster.run_pass().ended
    assert (node, pod.metadata.uid) == ("node-0", "pod-1")


def test_after_failures_there_is_a_pause() -> None:
    cluster = cluster_with(1)
    cluster.set_status("pod-1", "Failed", ready=False)
    plan = plan_pods(cluster.state(), lambda node: 7.0)
    assert (plan.delete, plan.retry_after) == ([], 7.0)


def test_on_delete_nothing_is_replaced() -> None:
    cluster = cluster_with(2)
    strategy = replace(cluster.daemon_set.spec.update_strategy, type="OnDelete")
    cluster.daemon_set = replace(cluster.daemon_set, spec=replace(cluster.daemon_set.spec, update_strategy=strategy))
    cluster.revision = "second"
    assert cluster.run_pass().delete == []


def test_what_is_unavailable_anyway_is_replaced_first() -> None:
    cluster = cluster_with(3)
    cluster.set_status("pod-3", "Running", ready=False)
    cluster.revision = "second"
    assert [pod.metadata.uid for pod in cluster.run_pass().delete] == ["pod-3"]


@pytest.mark.parametrize(
    ("surge", "unavailable", "limits"),
    [(0, "25%", (0, 3)), ("10%", 0, (1, 0)), (0, 0, (0, 1)), (0, "nonsense", (0, 1))],
)
def test_the_limits_of_a_rolling_update(surge: int | str, unavailable: int | str, limits: tuple[int, int]) -> None:
    assert limits_of(cluster_with(10, surge, unavailable).state()) == limits


LIMITS = st.sampled_from([(0, 1), (0, 2), (1, 0), (2, 0), (0, "50%"), ("50%", 0)])


@given(LIMITS, st.integers(1, 5), st.lists(st.integers(0, 9), max_size=30))
def test_a_rolling_update_keeps_to_its_limits_and_ends(
    limits: tuple[int | str, int | str], count: int, events: list[int]
) -> None:
    cluster = cluster_with(count, *limits)
    _, most = limits_of(cluster.state())
    cluster.revision = "second"
    for event in events:
        cluster.run_pass()
        assert cluster.unavailable <= most
        cluster.run_pods(event)
    for _ in range(4 * count + 4):
        cluster.run_pass()
        assert cluster.unavailable <= most
        cluster.run_pods()
    status = new_status(cluster.state(), 0)
    assert (status.updated_number_scheduled, status.number_available, len(cluster.pods)) == (count, count, count)
