"""What the service says of a node, and what explanations add."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.base.services import ServiceError
from koordinator.scheduler.engine.decision import RejectedNodes, Rejection
from koordinator.scheduler.explain.advice import advise
from tests.scheduler.fakes import describe
from tests.scheduler.ground.clusters import NOW
from tests.scheduler.plugins.node_numa_resource.numa_cluster import NUMA, Machines, pod, topology

_SINGLE = {"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"}


def document(machines: Machines, name: str = "a") -> Any:
    plugin = machines.profile.plugins[NUMA.name]
    assert isinstance(plugin, NUMA)
    return plugin.services()["/nodes/:nodeName"]({"nodeName": name})


def test_the_document_of_a_node() -> None:
    reserved = {"node.koordinator.sh/reservation": {"reservedCPUs": "6-7"}}
    machines = Machines(topology(cores=2, annotations=reserved), labels=_SINGLE)
    machines.placed(pod("p", "2", spec={"preferredCPUExclusivePolicy": "PCPULevel"}))

    found = document(machines)

    of_pod = {"node": 0, "resources": {"cpu": "2", "memory": "100Mi"}}
    assert found["cpuTopology"].pop("cpuDetails")["3"] == {
        "cpuID": 3, "coreID": 1, "nodeID": 0, "socketID": 0, "refCount": 0, "exclusivePolicy": "",
    }  # fmt: skip
    assert found == {
        "name": "a",
        "cpuTopology": {"numCPUs": 8, "numCores": 4, "numNodes": 2, "numSockets": 1},
        "reservedCPUs": "6-7",
        "maxRefCount": 1,
        "numaTopologyPolicy": "SingleNUMANode",
        "policy": {},
        "numaNodeResources": [
            {"node": 0, "resources": {"cpu": "4", "memory": "4Gi"}},
            {"node": 1, "resources": {"cpu": "2", "memory": "4Gi"}},
        ],
        "remainingNUMANodeResources": [
            {"node": 0, "resources": {"cpu": "2", "memory": "3996Mi"}},
            {"node": 1, "resources": {"cpu": "2", "memory": "4Gi"}},
        ],
        "allocatedNUMANodeResources": [of_pod],
        "availableCPUs": "2-5",
        "allocatedCPUs": {
            str(cpu): {
                "cpuID": cpu, "coreID": 0, "nodeID": 0, "socketID": 0, "refCount": 1, "exclusivePolicy": "PCPULevel",
            }
            for cpu in (0, 1)
        },
        "allocatedPods": [
            {
                "uid": "uid-p",
                "namespace": "default",
                "name": "p",
                "cpuset": "0-1",
                "cpuExclusivePolicy": "PCPULevel",
                "numaNodeResources": [of_pod],
            }
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [("a", "invalid topology, please check the NodeResourceTopology object"), ("b", 'node "b" not found')],
)
def test_a_node_without_cpus_has_no_document(name: str, message: str) -> None:
    with pytest.raises(ServiceError, match=message):
        document(Machines(), name)


def test_an_explanation_says_how_many_cpus_are_free() -> None:
    machines = Machines(topology(), cpu="32")
    machines.placed(pod("p", "9", spec={"preferredCPUBindPolicy": "SpreadByPCPUs"}))
    requested = describe(pod("q", "8", spec={"requiredCPUBindPolicy": "FullPCPUs"}))
    plugin = machines.profile.plugins[NUMA.name]
    assert isinstance(plugin, NUMA)
    assert isinstance(machines.engine.decide(requested, NOW), Rejection)

    state = plugin.pre_filter(requested).state
    lacks = plugin.lacks(requested, state, plugin.filter_one(requested, state, 0), 0)

    assert [each.text for each in lacks] == ["CPUs to bind on free cores: needs 8, free 0"]
    assert plugin.node_facts(0) == {"cpusFreeToBind": 7, "cpusBound": 9}


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("the requested CPUs must be integer", "request whole CPUs"),
        ("node(s) requested cpus not multiple cpus per core", "request whole cores"),
        ("node(s) invalid CPU Topology", "check that koordlet runs there"),
        ("node(s) NUMA Topology policy not match", "contradict each other"),
        ("node(s) cpu bind policy conflicts with pod's required cpu bind policy", "contradict each other"),
        ("Unaligned NUMA Hint cause cpu prefer [11] among [11]", "everything from few NUMA nodes"),
        ("Reservation(s) Insufficient NUMA cpu", "everything from few NUMA nodes"),
        ("not enough cpus available to satisfy request", "Too few CPUs are free to be bound: request fewer"),
        ("Insufficient amplified cpu", "Too few CPUs are free to be bound"),
    ],
)
def test_people_are_told_what_they_can_do(reason: str, advice: str) -> None:
    rejected = [RejectedNodes(NUMA.name, (reason,), False, 1, ())]
    machines = Machines(topology())

    (found,) = advise(rejected, describe(pod("p")), machines.view, None)

    assert advice in found
