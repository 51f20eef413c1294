"""Pods of the classes LSE and LSR are bound to CPUs of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from koordinator.api import annotations as annotation_keys
from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES
from tests.scheduler.plugins.node_numa_resource.numa_cluster import Machines, pod, topology

FULL = {"requiredCPUBindPolicy": "FullPCPUs"}
SPREAD = {"requiredCPUBindPolicy": "SpreadByPCPUs"}
_DOMAIN = "node.koordinator.sh"


def test_pods_get_cpus_of_their_own() -> None:
    machines = Machines(topology())

    assert [machines.placed(pod(name, cpu)) for name, cpu in (("p", "2"), ("q", "4"), ("r", "3"))] == [
        "0-1",
        "8-11",
        "2-4",
    ]


def test_a_pod_that_is_gone_leaves_its_cpus() -> None:
    machines = Machines(topology())
    machines.placed(pod("p", "14"))

    machines.state.forget(pod("p").metadata.uid)

    assert machines.placed(pod("q", "16")) == "0-15"


@pytest.mark.parametrize(
    ("cpu", "spec", "reason"),
    [
        ("1500m", None, "the requested CPUs must be integer"),
        ("3", FULL, "node(s) requested cpus not multiple cpus per core"),
        ("10", SPREAD, "not enough cpus available to satisfy request"),
        ("2", "{", "annotation scheduling.koordinator.sh/resource-spec: not JSON"),
    ],
)
def test_a_pod_that_cannot_be_bound_is_told_why(cpu: str, spec: Any, reason: str) -> None:
    assert reason in Machines(topology()).refused(pod("p", cpu, spec=spec))


@pytest.mark.parametrize("spec", [None, FULL, SPREAD])
def test_cpus_are_looked_for_before_a_node_is_chosen(spec: Mapping[str, str] | None) -> None:
    # By its amounts the node has free capacity: bound pods of another scheduler have taken the cores.
    machines = Machines(topology(), cpu="32")
    machines.bound(pod("x", "1", annotations={annotation_keys.RESOURCE_STATUS: {"cpuset": "1-15"}}), "a")

    assert "1 not enough cpus available to satisfy request" in machines.refused(pod("p", "2", spec=spec))


def test_a_node_without_a_topology_binds_nobody() -> None:
    assert "node(s) invalid CPU Topology" in Machines().refused(pod("p"))


@pytest.mark.parametrize(
    "changes", [{"qos": "LS"}, {"qos": ""}, {"spec": {"preferredCPUBindPolicy": "ConstrainedBurst"}}]
)
def test_other_pods_are_not_bound(changes: Mapping[str, Any]) -> None:
    assert Machines().placed(pod("p", **changes)) == ""


@pytest.mark.parametrize(
    ("label", "cpu", "cpus"), [("FullPCPUsOnly", "4", "0-3"), ("SpreadByPCPUs", "3", "0,2,4"), ("None", "3", "")]
)
def test_a_node_may_bind_every_pod(label: str, cpu: str, cpus: str) -> None:
    machines = Machines(topology(), labels={f"{_DOMAIN}/cpu-bind-policy": label})

    assert machines.placed(pod("p", cpu, qos="LS")) == cpus


def test_a_node_and_a_pod_may_contradict_each_other() -> None:
    machines = Machines(topology(), labels={f"{_DOMAIN}/cpu-bind-policy": "SpreadByPCPUs"})

    assert "cpu bind policy conflicts with pod's required cpu bind policy" in machines.refused(pod("p", spec=FULL))


@pytest.mark.parametrize(
    ("annotations", "cpus"),
    [
        ({f"{_DOMAIN}/reservation": {"reservedCPUs": "0-1"}}, "8-9"),
        ({f"{_DOMAIN}/system-qos-resource": {"cpuset": "8-15"}}, "0-1"),
        ({f"{_DOMAIN}/system-qos-resource": {"cpuset": "0-1", "cpusetExclusive": False}}, "0-1"),
        ({"kubelet.koordinator.sh/cpu-manager-policy": {"reservedCPUs": "0-2"}}, "8-9"),
        ({f"{_DOMAIN}/pod-cpu-allocs": [{"uid": "u", "cpuset": "0-1", "managedByKubelet": True}]}, "8-9"),
        ({f"{_DOMAIN}/pod-cpu-allocs": [{"uid": "u", "cpuset": "0-1"}]}, "0-1"),
        ({f"{_DOMAIN}/reservation": "{"}, "0-1"),
        ({f"{_DOMAIN}/reservation": {"reservedCPUs": "none"}}, "0-1"),
    ],
)
def test_reserved_cpus_are_not_given_away(annotations: Mapping[str, Any], cpus: str) -> None:
    assert Machines(topology(annotations=annotations)).placed(pod("p")) == cpus


def test_cpus_are_counted_where_the_topology_comes_after_the_pods() -> None:
    machines = Machines()
    machines.bound(pod("x", "4", annotations={annotation_keys.RESOURCE_STATUS: {"cpuset": "0-3"}}), "a")

    machines.notify(topology())

    assert machines.placed(pod("p", "4")) == "8-11"


def test_a_node_loses_its_topology() -> None:
    machines = Machines(topology())
    machines.placed(pod("p"))

    machines.state.set_node_object(NODE_RESOURCE_TOPOLOGIES.name, "a", None)

    assert "invalid CPU Topology" in machines.refused(pod("q"))


def test_a_record_of_nothing_holds_nothing() -> None:
    machines = Machines(topology())
    machines.bound(pod("x", "1", annotations={annotation_keys.RESOURCE_STATUS: "{}"}), "a")

    assert machines.placed(pod("p", "15")) == "0-14"


@pytest.mark.parametrize("text", ["{", '{"cpuset": "a-b"}', '{"numaNodeResources": 1}'])
def test_a_record_that_cannot_be_read_may_hold_every_cpu(text: str) -> None:
    machines = Machines(topology())
    machines.bound(pod("x", "1", annotations={annotation_keys.RESOURCE_STATUS: text}), "a")

    assert "CPUs held by a pod whose allocation record cannot be read" in machines.refused(pod("p", "1"))
    machines.state.remove_pod("uid-x")
    assert machines.placed(pod("p", "15")) == "0-14"


def test_the_cpus_of_a_pod_are_its_own_whatever_its_request_for_them_says() -> None:
    machines = Machines(topology())
    texts = {annotation_keys.RESOURCE_STATUS: '{"cpuset":"0-3"}', annotation_keys.RESOURCE_SPEC: "{"}
    machines.bound(pod("x", "4", annotations=texts), "a")

    assert machines.placed(pod("p", "12")) == "4-15"


@pytest.mark.parametrize(
    ("spec", "labels", "written"),
    [
        (None, {}, {"preferredCPUBindPolicy": "FullPCPUs"}),
        ({"preferredCPUBindPolicy": "Default"}, {}, {"preferredCPUBindPolicy": "FullPCPUs"}),
        ({"preferredCPUBindPolicy": "SpreadByPCPUs"}, {}, None),
        ({"requiredCPUBindPolicy": "Default"}, {}, {"requiredCPUBindPolicy": "FullPCPUs"}),
        (
            None,
            {f"{_DOMAIN}/cpu-bind-policy": "SpreadByPCPUs"},
            {"requiredCPUBindPolicy": "SpreadByPCPUs"},
        ),
        (
            {"preferredCPUExclusivePolicy": "PCPULevel"},
            {},
            {"preferredCPUBindPolicy": "FullPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"},
        ),
    ],
)
def test_what_a_pod_has_got_is_noted_on_it(
    spec: Mapping[str, str] | None, labels: Mapping[str, str], written: Mapping[str, str] | None
) -> None:
    machines = Machines(topology(), labels=labels)
    placed = pod("p", spec=spec)
    cpus = machines.placed(placed)

    changes = machines.noted(placed)

    assert json.loads(changes[annotation_keys.RESOURCE_STATUS]) == {"cpuset": cpus}
    assert json.loads(changes.get(annotation_keys.RESOURCE_SPEC, "null")) == written


def test_after_a_restart_the_record_says_what_the_pod_holds() -> None:
    machines = Machines(topology())
    placed = pod("p", "3")
    machines.placed(placed)
    written = {**placed.metadata.annotations, **machines.noted(placed)}

    again = Machines(topology())
    again.bound(replace(placed, metadata=replace(placed.metadata, annotations=written)), "a")

    assert again.held(placed) == machines.held(placed)
    assert again.placed(pod("q", "3")) == machines.placed(pod("q", "3"))
