"""What kubelet's configuration and checkpoint mean for CPUs."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.koordlet.report.node_topology.kubelet_cpus import (
    CPUManagerStateError,
    kubelet_cpus,
    parse_cpu_manager_state,
)
from tests.koordlet.report.node_topology.machines import machine

EIGHT = machine(1, 1, 4, 2)


def static(**configuration: Any) -> dict[str, Any]:
    return {"cpuManagerPolicy": "static", **configuration}


@pytest.mark.parametrize(
    ("configuration", "reserved"),
    [
        (static(reservedSystemCPUs="1,3"), {1, 3}),
        (static(systemReserved={"cpu": "500m", "memory": "1Gi"}, kubeReserved={"cpu": "1500m"}), {0, 4}),
        (static(systemReserved={"cpu": "100m"}), {0}),
        (static(kubeReserved={"cpu": "2", "pid": "100"}, reservedSystemCPUs="7"), {7}),
        ({"cpuManagerPolicy": "none", "reservedSystemCPUs": "1"}, set()),
    ],
)
def test_reserved_cpus(configuration: dict[str, Any], reserved: set[int]) -> None:
    known = kubelet_cpus(configuration, EIGHT)
    assert known.reserved == reserved
    assert known.problem == ""


@pytest.mark.parametrize(
    ("configuration", "problem"),
    [
        (static(), "systemReserved.cpu and kubeReserved.cpu are 0"),
        (static(reservedSystemCPUs="7-9"), "reservedSystemCPUs 7-9 is no part of 0-7"),
        (static(reservedSystemCPUs="all"), "'all' is no list of CPUs"),
        (static(systemReserved={"cpu": "9"}), "9 CPUs are wanted, and there are 8"),
        (static(systemReserved={"cpu": "-1"}), "systemReserved.cpu is -1: it cannot be negative"),
        (static(kubeReserved={"cpu": "1", "gpu": "1"}), "kubeReserved reserves gpu: allowed are cpu, memory"),
        (static(kubeReserved={"cpu": "many"}), "kubeReserved.cpu: 'many' is not a quantity"),
        (static(kubeReserved=["cpu"]), "Expected `object`"),
    ],
)
def test_a_static_policy_whose_cpus_cannot_be_reported(configuration: dict[str, Any], problem: str) -> None:
    known = kubelet_cpus(configuration, EIGHT)
    assert known.reserved == frozenset()
    assert problem in known.problem
    assert known.document() == {"policy": "static"}


def test_the_annotation_has_what_is_known() -> None:
    options = {"full-pcpus-only": "true", "align-by-socket": "false"}
    configuration = static(reservedSystemCPUs="0-1", cpuManagerPolicyOptions=options)
    known = kubelet_cpus(configuration, EIGHT)
    assert list(known.document().items()) == [
        ("policy", "static"),
        ("options", {"align-by-socket": "false", "full-pcpus-only": "true"}),
        ("reservedCPUs", "0-1"),
    ]


@pytest.mark.parametrize(
    ("policy", "scope", "reported"),
    [
        ("single-numa-node", "container", "SingleNUMANodeContainerLevel"),
        ("single-numa-node", "pod", "SingleNUMANodePodLevel"),
        ("restricted", "container", "RestrictedContainerLevel"),
        ("restricted", "pod", "RestrictedPodLevel"),
        ("best-effort", "container", "BestEffortContainerLevel"),
        ("best-effort", "pod", "BestEffortPodLevel"),
        ("none", "pod", "None"),
        ("", "", "None"),
        ("restricted", "universe", "None"),
        (None, None, "None"),
    ],
)
def test_topology_policies(policy: str | None, scope: str | None, reported: str) -> None:
    configuration = {"topologyManagerPolicy": policy, "topologyManagerScope": scope}
    assert kubelet_cpus(configuration, EIGHT).topology_policy == reported


def test_a_checkpoint_of_kubelet() -> None:
    content = (
        b'{"policyName":"static","defaultCpuSet":"0,4-7","entries":{"a":{"x":"1","y":"2-3"},"b":{"z":""},'
        b'"c":{"z":"one"}},"checksum":1353318690}'
    )
    assert parse_cpu_manager_state(content) == {"a": {1, 2, 3}}


@pytest.mark.parametrize("content", [b"", b"\n", b'{"policyName":"none","defaultCpuSet":"","checksum":1}'])
def test_a_checkpoint_that_says_nothing(content: bytes) -> None:
    assert parse_cpu_manager_state(content) == {}


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"entries":{"a":"1"}}'])
def test_a_checkpoint_that_cannot_be_read_is_named(content: bytes) -> None:
    with pytest.raises(CPUManagerStateError, match="cpu_manager_state: "):
        parse_cpu_manager_state(content)
