"""Pods get what they request from the same NUMA nodes, as policies of nodes and pods demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from koordinator.api import annotations as annotation_keys
from koordinator.scheduler.engine.framework import FilterPlugin
from tests.scheduler.fakes import describe
from tests.scheduler.plugins.node_numa_resource.numa_cluster import NUMA, Machines, pod, topology

POLICY = "node.koordinator.sh/numa-topology-policy"
SINGLE, RESTRICTED, BEST_EFFORT = "SingleNUMANode", "Restricted", "BestEffort"


def aligned(policy: str, **changes: Any) -> Machines:
    """A machine with two NUMA nodes of 8 CPUs and 4 GiB."""
    return Machines(topology(**changes), labels={POLICY: policy})


def test_a_pod_gets_everything_from_one_numa_node() -> None:
    machines = aligned(SINGLE)
    machines.placed(pod("p", "6", qos="LS"))

    machines.placed(pod("q", "4", "1Gi", qos="LS"))

    assert machines.zones_of(pod("q")) == {1: {"cpu": "4", "memory": "1Gi"}}


def test_a_bound_pod_gets_the_cpus_of_its_numa_node() -> None:
    machines = aligned(SINGLE)
    machines.placed(pod("p", "6", qos="LS"))

    assert machines.placed(pod("q", "3")) == "8-10"
    assert machines.zones_of(pod("q")) == {1: {"cpu": "3", "memory": "100Mi"}}


def test_a_pod_that_no_numa_node_can_take_is_told_why() -> None:
    machines = aligned(SINGLE)

    assert machines.refused(pod("p", "9", qos="LS")) == (
        "0/1 nodes are available: 1 Unaligned NUMA Hint cause cpu prefer [11] among [11],memory prefer [11] among [11]."
    )


def test_a_pod_that_fits_nowhere_is_told_what_is_missing() -> None:
    machines = Machines(topology(), labels={POLICY: SINGLE}, cpu="32")

    assert "1 Unsatisfied NUMA cpu" in machines.refused(pod("p", "17", qos="LS"))


def test_what_is_taken_from_both_numa_nodes_is_halved() -> None:
    machines = aligned(RESTRICTED)

    assert machines.placed(pod("p", "10", "5Gi")) == "0-4,8-12"
    assert machines.zones_of(pod("p")) == {0: {"cpu": "5", "memory": "2560Mi"}, 1: {"cpu": "5", "memory": "2560Mi"}}


def test_best_effort_takes_what_there_is() -> None:
    machines = aligned(BEST_EFFORT)

    assert machines.placed(pod("p", "6")) == "0-5"
    assert machines.placed(pod("q", "6")) == "8-13"
    assert machines.placed(pod("r", "4")) == "6-7,14-15"


@pytest.mark.parametrize("policy", [SINGLE, RESTRICTED, BEST_EFFORT])
def test_a_pod_may_have_a_policy_of_its_own(policy: str) -> None:
    machines = Machines(topology())

    machines.placed(pod("p", "2", qos="LS", numa={"numaTopologyPolicy": policy}))

    assert machines.zones_of(pod("p")) == {0: {"cpu": "2", "memory": "100Mi"}}


@pytest.mark.parametrize(
    ("numa", "reason"),
    [
        ({"numaTopologyPolicy": RESTRICTED}, "node(s) NUMA Topology policy not match"),
        ("{", "annotation scheduling.koordinator.sh/numa-topology-spec: not JSON"),
        (
            {"numaTopologyPolicy": "Somehow"},
            "numaTopologyPolicy 'Somehow' is none of BestEffort, Restricted, SingleNUMANode",
        ),
    ],
)
def test_a_policy_that_cannot_be_is_refused(numa: Any, reason: str) -> None:
    assert reason in aligned(SINGLE).refused(pod("p", qos="LS", numa=numa))


def test_a_hint_of_another_scheduler_that_cannot_be_read_is_why_the_pod_waits() -> None:
    broken = {annotation_keys.RESOURCE_STATUS: {"cpuset": "0-1"}, annotation_keys.SCHEDULING_HINT: "{"}
    assert "scheduling-hint: " in aligned(SINGLE).refused(pod("p", qos="LS", annotations=broken))


def test_the_policy_of_kubelet_counts_where_the_node_has_no_label() -> None:
    machines = Machines(topology(policies=("SingleNUMANodePodLevel",)))

    assert "Unaligned NUMA Hint" in machines.refused(pod("p", "9", qos="LS"))


@pytest.mark.parametrize("policy", [SINGLE, BEST_EFFORT])
def test_without_zones_nothing_can_be_aligned(policy: str) -> None:
    machines = aligned(policy, zones=False)

    assert "1 node(s) missing NUMA resources" in machines.refused(pod("p", qos="LS"))


def test_a_node_label_that_nobody_knows_aligns_nothing() -> None:
    assert Machines(topology(), labels={POLICY: "Somehow"}).placed(pod("p", "9", qos="LS")) == ""


def test_pods_of_one_numa_node_keep_pods_of_two_away() -> None:
    machines = Machines(topology())
    machines.placed(pod("p", "2", numa={"numaTopologyPolicy": SINGLE}))

    message = machines.refused(pod("q", "10", numa={"numaTopologyPolicy": RESTRICTED}))

    assert "Unaligned NUMA Hint" in message


def test_so_do_pods_that_are_not_bound_to_cpus() -> None:
    machines = Machines(topology())
    machines.placed(pod("p", "2", qos="LS", numa={"numaTopologyPolicy": SINGLE}))

    message = machines.refused(pod("q", "10", qos="LS", numa={"numaTopologyPolicy": RESTRICTED}))

    assert "Unaligned NUMA Hint" in message


@pytest.mark.parametrize("numa", [{}, {"singleNUMANodeExclusive": "Preferred"}])
def test_others_share_numa_nodes(numa: Mapping[str, str]) -> None:
    machines = aligned(RESTRICTED)
    machines.placed(pod("p", "2"))

    assert machines.placed(pod("q", "10", numa=numa)) == "2-6,8-12"


def test_a_required_policy_counts_whole_cores_of_each_numa_node() -> None:
    full = {"requiredCPUBindPolicy": "FullPCPUs"}
    machines = Machines(topology(), labels={POLICY: SINGLE}, cpu="32")
    machines.placed(pod("p", "3"))
    machines.placed(pod("q", "8", spec=full))

    # Of the first NUMA node two cores and a half are free.
    assert machines.placed(pod("r", "4", spec=full)) == "4-7"
    assert "1 Unsatisfied NUMA cpu" in machines.refused(pod("s", "2", spec=full))


def test_records_of_numa_nodes_count() -> None:
    machines = aligned(SINGLE)
    status = {"numaNodeResources": [{"node": 0, "resources": {"cpu": "7", "memory": "1Gi"}}]}
    machines.bound(pod("x", "7", qos="LS", annotations={annotation_keys.RESOURCE_STATUS: status}), "a")

    machines.placed(pod("p", "2", qos="LS"))

    assert machines.zones_of(pod("p")) == {1: {"cpu": "2", "memory": "100Mi"}}


@pytest.mark.parametrize(("ratio", "placed"), [(1.0, False), (1.5, True)])
def test_zones_are_amplified_as_the_node_is(ratio: float, placed: bool) -> None:
    machines = Machines(
        topology(),
        labels={POLICY: SINGLE},
        annotations={annotation_keys.RESOURCE_AMPLIFICATION_RATIO: {"cpu": ratio}},
        cpu="24",
    )
    requested = pod("p", "11", qos="LS")

    assert (not machines.placed(requested)) if placed else "Unaligned" in machines.refused(requested)


@pytest.mark.parametrize(
    ("cpu", "qos", "fits"), [("8", "LS", True), ("9", "LS", False), ("4", "LSR", True), ("5", "LSR", False)]
)
def test_bound_cpus_count_amplified(cpu: str, qos: str, fits: bool) -> None:
    machines = Machines(topology(), annotations={annotation_keys.RESOURCE_AMPLIFICATION_RATIO: {"cpu": 2.0}}, cpu="32")
    machines.placed(pod("x", "12"))

    requested = describe(pod("p", cpu, qos=qos))

    assert (rejecting(machines, requested) == "") is fits


def rejecting(machines: Machines, requested: Any) -> str:
    """What the plugin's filter says of the node, looked at alone; the same as together with others."""
    plugin = machines.profile.plugins[NUMA.name]
    assert isinstance(plugin, NUMA)
    state = plugin.pre_filter(requested).state
    together = plugin.filter(requested, state, machines.view.columns.alive_rows)
    code = plugin.filter_one(requested, state, 0)
    assert isinstance(plugin, FilterPlugin)
    assert together.tolist() == [code]
    return ", ".join(reason.text for reason in plugin.reasons(requested, state, code))


def test_a_ratio_that_cannot_be_read_keeps_pods_with_cpu_away() -> None:
    machines = Machines(annotations={annotation_keys.RESOURCE_AMPLIFICATION_RATIO: "{"})

    assert "invalid CPU amplification ratio" in machines.refused(pod("p", qos="LS"))


def test_a_multiplied_node_without_cpus_in_its_topology_takes_no_pod_with_cpu() -> None:
    machines = Machines(
        topology(annotations={annotation_keys.CPU_TOPOLOGY: "{"}),
        annotations={annotation_keys.RESOURCE_AMPLIFICATION_RATIO: {"cpu": 2.0}},
        cpu="32",
    )

    assert "invalid CPU Topology" in machines.refused(pod("p", qos="LS"))
