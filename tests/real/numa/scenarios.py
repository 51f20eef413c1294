"""What is requested of NUMA topologies: bind policies, exclusive ones, NUMA policies, reserved CPUs, amplification,
Reservations, and annotations that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.real.numa.stage import Bound, Change, Delete, Machine, Pod, Reservation, Scenario

_DOMAIN: Final = "node.koordinator.sh"
_FULL: Final = {"preferredCPUBindPolicy": "FullPCPUs"}
_SPREAD: Final = {"preferredCPUBindPolicy": "SpreadByPCPUs"}
_MUST_FULL: Final = {"requiredCPUBindPolicy": "FullPCPUs"}
_MUST_SPREAD: Final = {"requiredCPUBindPolicy": "SpreadByPCPUs"}
_PACKED: Final = {f"{_DOMAIN}/numa-allocate-strategy": "MostAllocated"}


def _numa(policy: str) -> dict[str, str]:
    return {f"{_DOMAIN}/numa-topology-policy": policy}


def _bind(policy: str) -> dict[str, str]:
    return {f"{_DOMAIN}/cpu-bind-policy": policy}


def _wants(policy: str, exclusive: str = "") -> dict[str, str]:
    return {"numaTopologyPolicy": policy, **({"singleNUMANodeExclusive": exclusive} if exclusive else {})}


def _exclusive(policy: str, bind: str = "SpreadByPCPUs") -> dict[str, str]:
    return {"preferredCPUBindPolicy": bind, "preferredCPUExclusivePolicy": policy}


BINDING: Final[Mapping[str, Scenario]] = {
    "full": (Machine(), Pod("p", "3", spec=_FULL), Pod("q", "2", spec=_FULL), Pod("r", "6", spec=_FULL)),
    "spread": (Machine(), Pod("p", "3", spec=_SPREAD), Pod("q", "2", spec=_SPREAD), Pod("r", "6", spec=_SPREAD)),
    "must-full": (Machine(), Pod("p", "4", spec=_MUST_FULL), Pod("q", "10", spec=_MUST_FULL)),
    "must-full-odd": (Machine(), Pod("p", "3", spec=_MUST_FULL)),
    "must-full-no-room": (
        Machine(),
        Pod("p", "8", spec=_MUST_SPREAD),
        Pod("q", "2", spec=_MUST_FULL),
    ),
    "must-spread": (Machine(), Pod("p", "4", spec=_MUST_SPREAD), Pod("q", "4", spec=_MUST_SPREAD)),
    "must-spread-no-room": (Machine(), Pod("p", "9", spec=_MUST_SPREAD)),
    "by-default": (Machine(), Pod("p", "2"), Pod("q", "3", spec={"preferredCPUBindPolicy": "Default"})),
    "required-default": (Machine(), Pod("p", "4", spec={"requiredCPUBindPolicy": "Default"})),
    "constrained-burst": (Machine(), Pod("p", "4", spec={"preferredCPUBindPolicy": "ConstrainedBurst"})),
    "unknown-policy": (Machine(), Pod("p", "4", spec={"preferredCPUBindPolicy": "Somehow"})),
    "lse": (Machine(), Pod("p", "4", qos="LSE")),
    "ls": (Machine(), Pod("p", "4", qos="LS", spec=_FULL)),
    "no-class": (Machine(), Pod("p", "4", qos="", spec=_FULL)),
    "lsr-of-batch": (Machine(), Pod("p", "4", labels={"koordinator.sh/priority-class": "koord-batch"})),
    "not-integer": (Machine(), Pod("p", "1500m", spec=_FULL)),
    "no-topology": (Machine(topology=None), Pod("p", "2", spec=_FULL)),
    "empty-topology": (Machine(topology={f"{_DOMAIN}/cpu-topology": None}), Pod("p", "2", spec=_FULL)),
    "packed": (
        Machine(labels=_PACKED),
        Pod("p", "2", spec=_FULL),
        Pod("q", "2", spec=_FULL),
        Pod("r", "8", spec=_FULL),
    ),
    "least-allocated": (
        Machine(labels={f"{_DOMAIN}/numa-allocate-strategy": "DistributeEvenly"}),
        Pod("p", "2", spec=_FULL),
        Pod("q", "2", spec=_FULL),
        Pod("r", "2", spec=_SPREAD),
    ),
    "two-sockets": (
        Machine(sockets=2, numa_nodes=1, cores=4),
        Pod("p", "6", spec=_FULL),
        Pod("q", "6", spec=_FULL),
        Pod("r", "4", spec=_FULL),
    ),
    "four-numa-nodes": (
        Machine(sockets=2, numa_nodes=2, cores=2),
        Pod("p", "2", spec=_FULL),
        Pod("q", "6", spec=_FULL),
        Pod("r", "3", spec=_SPREAD),
        Pod("s", "4", spec=_SPREAD),
    ),
    "one-thread": (Machine(threads=1), Pod("p", "3", spec=_SPREAD), Pod("q", "4", spec=_FULL)),
    "exclusive-cores": (
        Machine(),
        Pod("p", "2", spec=_exclusive("PCPULevel")),
        Pod("q", "2", spec=_exclusive("PCPULevel")),
        Pod("r", "6", spec=_exclusive("PCPULevel")),
    ),
    "exclusive-numa-nodes": (
        Machine(labels=_PACKED),
        Pod("p", "2", spec=_exclusive("NUMANodeLevel", "FullPCPUs")),
        Pod("q", "2", spec=_exclusive("NUMANodeLevel", "FullPCPUs")),
        Pod("r", "2", spec=_exclusive("NUMANodeLevel", "FullPCPUs")),
    ),
    "exclusive-among-others": (
        Machine(labels=_PACKED),
        Pod("p", "2", spec=_FULL),
        Pod("q", "2", spec=_exclusive("NUMANodeLevel")),
        Pod("r", "2", spec=_exclusive("PCPULevel")),
        Pod("s", "2", spec=_SPREAD),
    ),
    "released": (Machine(), Pod("p", "16", spec=_FULL), Delete("p"), Pod("q", "16", spec=_FULL)),
    "two-nodes": (
        Machine("a", numa_nodes=1),
        Machine("b", numa_nodes=1, cores=6),
        Pod("p", "8", spec=_MUST_FULL),
        Pod("q", "6", spec=_MUST_FULL),
        Pod("r", "4", spec=_MUST_FULL),
    ),
}

NODES_SAY: Final[Mapping[str, Scenario]] = {
    "node-full": (Machine(labels=_bind("FullPCPUsOnly")), Pod("p", "2", qos="LS"), Pod("q", "4")),
    "node-full-odd": (Machine(labels=_bind("FullPCPUsOnly")), Pod("p", "3", qos="LS")),
    "node-full-fraction": (Machine(labels=_bind("FullPCPUsOnly")), Pod("p", "1500m", qos="LS")),
    "node-full-no-cpu": (Machine(labels=_bind("FullPCPUsOnly")), Pod("p", "", qos="LS")),
    "node-spread": (Machine(labels=_bind("SpreadByPCPUs")), Pod("p", "3", qos="LS"), Pod("q", "4", spec=_FULL)),
    "node-none": (Machine(labels=_bind("None")), Pod("p", "3", qos="LS")),
    "node-conflict": (Machine(labels=_bind("SpreadByPCPUs")), Pod("p", "4", spec=_MUST_FULL)),
    "kubelet-full": (
        Machine(
            topology={
                "kubelet.koordinator.sh/cpu-manager-policy": {
                    "policy": "static",
                    "options": {"full-pcpus-only": "true"},
                    "reservedCPUs": "0-1",
                }
            }
        ),
        Pod("p", "4", qos="LS"),
        Pod("q", "3", qos="LS"),
        Pod("r", "8", spec=_FULL),
    ),
    "reserved-by-node": (
        Machine(topology={f"{_DOMAIN}/reservation": {"reservedCPUs": "0-3"}}),
        Pod("p", "2", spec=_FULL),
        Pod("q", "10", spec=_FULL),
        Pod("r", "2", spec=_FULL),
    ),
    "reserved-by-system": (
        Machine(topology={f"{_DOMAIN}/system-qos-resource": {"cpuset": "0-7"}}),
        Pod("p", "8", spec=_FULL),
        Pod("q", "2", spec=_FULL),
    ),
    "system-not-exclusive": (
        Machine(topology={f"{_DOMAIN}/system-qos-resource": {"cpuset": "0-7", "cpusetExclusive": False}}),
        Pod("p", "8", spec=_FULL),
        Pod("q", "2", spec=_FULL),
    ),
    "reserved-by-kubelet-pods": (
        Machine(
            topology={
                f"{_DOMAIN}/pod-cpu-allocs": [
                    {"namespace": "n", "name": "g", "uid": "u", "cpuset": "8-11", "managedByKubelet": True},
                    {"namespace": "n", "name": "h", "uid": "v", "cpuset": "0-3"},
                ]
            }
        ),
        Pod("p", "12", spec=_FULL),
        Pod("q", "2", spec=_FULL),
    ),
    "broken-reservations": (
        Machine(
            topology={
                f"{_DOMAIN}/reservation": "{",
                f"{_DOMAIN}/pod-cpu-allocs": "[1]",
                f"{_DOMAIN}/system-qos-resource": {"cpuset": "x"},
                "kubelet.koordinator.sh/cpu-manager-policy": "none",
            }
        ),
        Pod("p", "16", spec=_FULL),
    ),
    "topology-comes": (
        Machine(topology={f"{_DOMAIN}/cpu-topology": None}),
        Pod("p", "2", spec=_FULL),
        Change(
            "a",
            {
                "annotations": {
                    f"{_DOMAIN}/cpu-topology": {
                        "detail": [{"id": number, "core": number // 2, "node": 0, "socket": 0} for number in range(4)]
                    }
                }
            },
            of_topology=True,
        ),
    ),
    "amplified": (
        Machine(ratio=1.5),
        Pod("p", "8", spec=_FULL),
        Pod("q", "12", qos="LS"),
        Pod("r", "1", qos="LS"),
    ),
    "amplified-bound": (Machine(ratio=2.0), Pod("p", "16", spec=_FULL), Pod("q", "1", qos="LS")),
    "amplified-too-much": (Machine(ratio=2.0), Pod("l", "20", qos="LS"), Pod("p", "8", spec=_FULL)),
    "broken-ratio": (
        Machine(annotations={f"{_DOMAIN}/resource-amplification-ratio": "{"}),
        Pod("p", "2", qos="LS"),
        Pod("q", "", qos="LS"),
    ),
    "amplified-without-topology": (
        Machine(ratio=1.5, topology={f"{_DOMAIN}/cpu-topology": None}),
        Pod("p", "2", qos="LS"),
    ),
    "amplified-numa": (
        Machine(ratio=1.5, labels=_numa("SingleNUMANode")),
        Pod("p", "4", spec=_FULL),
        Pod("q", "10", qos="LS"),
        Pod("r", "5", qos="LS"),
    ),
    "amplified-topology": (
        Machine(
            ratio=1.5,
            labels=_numa("SingleNUMANode"),
            topology={f"{_DOMAIN}/resource-amplification-ratio": {"cpu": 1.5}},
        ),
        Pod("p", "4", spec=_FULL),
        Pod("q", "8", qos="LS"),
    ),
}

ALIGNING: Final[Mapping[str, Scenario]] = {
    **{
        f"node-{policy.lower()}": (
            Machine(labels=_numa(policy)),
            Pod("p", "4", qos="LS"),
            Pod("q", "4", qos="LS"),
            Pod("r", "6", qos="LS"),
            Pod("s", "4", "4Gi", qos="LS"),
        )
        for policy in ("BestEffort", "Restricted", "SingleNUMANode")
    },
    **{
        f"pod-{policy.lower()}": (
            Machine(),
            Pod("p", "4", qos="LS", numa=_wants(policy)),
            Pod("q", "6", qos="LS", numa=_wants(policy)),
            Pod("r", "5", qos="LS", numa=_wants(policy)),
        )
        for policy in ("BestEffort", "Restricted", "SingleNUMANode")
    },
    **{
        f"bound-{policy.lower()}": (
            Machine(labels=_numa(policy)),
            Pod("p", "4", spec=_FULL),
            Pod("q", "4", spec=_SPREAD),
            Pod("r", "4", spec=_FULL),
            Pod("s", "2", spec=_MUST_FULL),
        )
        for policy in ("BestEffort", "Restricted", "SingleNUMANode")
    },
    **{
        f"kubelet-{policy.lower()}": (Machine(policies=(policy,)), Pod("p", "6", qos="LS"), Pod("q", "9", qos="LS"))
        for policy in ("BestEffort", "Restricted", "SingleNUMANodePodLevel", "SingleNUMANodeContainerLevel")
    },
    "too-big-for-one": (Machine(labels=_numa("SingleNUMANode")), Pod("p", "9", qos="LS")),
    "memory-too-big": (Machine(labels=_numa("SingleNUMANode")), Pod("p", "2", "17Gi", qos="LS")),
    "restricted-across": (Machine(labels=_numa("Restricted")), Pod("p", "10", "4Gi", spec=_FULL)),
    "restricted-memory-across": (Machine(labels=_numa("Restricted")), Pod("p", "2", "20Gi", qos="LS")),
    "policies-differ": (Machine(labels=_numa("Restricted")), Pod("p", qos="LS", numa=_wants("SingleNUMANode"))),
    "policies-agree": (Machine(labels=_numa("Restricted")), Pod("p", qos="LS", numa=_wants("Restricted"))),
    "no-zones": (Machine(has_zones=False), Pod("p", qos="LS", numa=_wants("Restricted"))),
    "no-topology-to-align": (Machine(topology=None), Pod("p", qos="LS", numa=_wants("SingleNUMANode"))),
    "one-numa-node": (Machine(numa_nodes=1, labels=_numa("SingleNUMANode")), Pod("p", spec=_FULL), Pod("q", qos="LS")),
    "exclusive-single": (
        Machine(),
        Pod("p", "4", spec=_FULL, numa=_wants("SingleNUMANode")),
        Pod("q", "10", spec=_FULL, numa=_wants("Restricted")),
    ),
    "exclusive-shared": (
        Machine(),
        Pod("p", "10", spec=_FULL, numa=_wants("Restricted")),
        Pod("q", "2", spec=_FULL, numa=_wants("SingleNUMANode")),
    ),
    "exclusive-preferred": (
        Machine(),
        Pod("p", "10", spec=_FULL, numa=_wants("Restricted", "Preferred")),
        Pod("q", "2", spec=_FULL, numa=_wants("SingleNUMANode", "Preferred")),
    ),
    "exclusive-required-on-node": (
        Machine(labels=_numa("Restricted")),
        Pod("p", "10", spec=_FULL),
        Pod("q", "2", spec=_FULL, numa={"singleNUMANodeExclusive": "Required"}),
    ),
    "device-in-zones": (
        Machine(labels=_numa("SingleNUMANode"), devices={"example.com/card": "2"}),
        Pod("p", "2", qos="LS", more={"example.com/card": "1"}),
        Pod("q", "2", qos="LS", more={"example.com/card": "2"}),
        Pod("r", "2", qos="LS", more={"example.com/card": "1"}),
        Pod("s", "2", qos="LS", more={"example.com/card": "1"}),
    ),
    "aligned-full-required": (
        Machine(labels=_numa("SingleNUMANode")),
        Pod("p", "5", spec=_SPREAD),
        Pod("q", "6", spec=_MUST_FULL),
        Pod("r", "4", spec=_MUST_FULL),
    ),
    "aligned-by-node-policy": (
        Machine(labels={**_numa("SingleNUMANode"), **_bind("FullPCPUsOnly")}),
        Pod("p", "4", qos="LS"),
        Pod("q", "6", qos="LS"),
        Pod("r", "2", qos="LS"),
    ),
    "best-effort-across": (
        Machine(labels=_numa("BestEffort")),
        Pod("p", "6", spec=_FULL),
        Pod("q", "6", spec=_FULL),
        Pod("r", "4", spec=_FULL),
    ),
    "released-memory": (
        Machine(labels=_numa("SingleNUMANode")),
        Pod("p", "8", "16Gi", qos="LS"),
        Pod("q", "8", "16Gi", qos="LS"),
        Pod("r", "2", "1Gi", qos="LS"),
        Delete("p"),
    ),
    "policy-comes": (
        Machine(),
        Pod("p", "9", qos="LS", numa=_wants("SingleNUMANode")),
        Pod("q", "6", qos="LS"),
        Change("a", {"labels": _numa("SingleNUMANode")}),
        Pod("r", "9", qos="LS"),
        Pod("s", "6", qos="LS"),
    ),
    "nodes-differ": (
        Machine("a", labels=_numa("SingleNUMANode")),
        Machine("b"),
        Pod("p", "9", qos="LS"),
        Pod("q", "2", qos="LS", node="a"),
        Pod("r", "8", qos="LS", node="a"),
    ),
    "strategies-of-nodes": (
        Machine("a", labels={**_numa("SingleNUMANode"), **_PACKED}),
        Pod("p", "2", qos="LS"),
        Pod("q", "2", qos="LS"),
        Pod("r", "2", spec=_FULL),
    ),
}

_STATUS: Final = "scheduling.koordinator.sh/resource-status"

ANNOTATIONS: Final[Mapping[str, Scenario]] = {
    "bound-already": (
        Machine(),
        Bound(Pod("p", "4", annotations={_STATUS: {"cpuset": "0-3"}})),
        Pod("q", "4", spec=_FULL),
        Pod("r", "8", spec=_FULL),
    ),
    "bound-already-in-zones": (
        Machine(labels=_numa("SingleNUMANode")),
        Bound(
            Pod(
                "p",
                "6",
                qos="LS",
                annotations={_STATUS: {"numaNodeResources": [{"node": 0, "resources": {"cpu": "6", "memory": "4Gi"}}]}},
            )
        ),
        Pod("q", "6", qos="LS"),
        Pod("r", "4", qos="LS"),
    ),
    "broken-status": (
        Machine(),
        Bound(Pod("p", "4", annotations={_STATUS: "{"})),
        Bound(Pod("x", "4", annotations={_STATUS: {"cpuset": "a-b"}})),
        Pod("q", "8", spec=_FULL),
    ),
    "foreign-cpus": (
        Machine(),
        Bound(Pod("p", "4", annotations={_STATUS: {"cpuset": "100-103"}})),
        Pod("q", "12", spec=_FULL),
    ),
    "status-of-the-user": (
        Machine(),
        Pod("p", "4", spec=_FULL, annotations={_STATUS: {"cpuset": "8-11"}}),
        Pod("q", "4", spec=_FULL),
    ),
}

_WEB: Final = {"app": "web"}

RESERVING: Final[Mapping[str, Scenario]] = {
    "reserved-cpus": (
        Machine(),
        Reservation(Pod("r", "4", spec=_FULL)),
        Pod("p", "4", spec=_FULL),
        Pod("o", "4", spec=_FULL, app="web"),
        Pod("q", "8", spec=_FULL),
    ),
    "reserved-all": (
        Machine(numa_nodes=1),
        Reservation(Pod("r", "8", spec=_MUST_FULL)),
        Pod("p", "2", spec=_MUST_FULL),
        Pod("o", "4", spec=_MUST_FULL, app="web"),
        Pod("o2", "4", spec=_MUST_FULL, app="web"),
    ),
    "owner-takes-part": (
        Machine(),
        Reservation(Pod("r", "6", spec=_MUST_FULL)),
        Pod("o", "2", spec=_MUST_FULL, app="web"),
        Pod("o2", "4", spec=_MUST_FULL, app="web"),
        Pod("p", "10", spec=_MUST_FULL),
    ),
    "owner-needs-more": (
        Machine(),
        Reservation(Pod("r", "4", spec=_MUST_FULL)),
        Pod("o", "6", spec=_MUST_FULL, app="web"),
    ),
    "restricted-owner": (
        Machine(),
        Reservation(Pod("r", "4", spec=_MUST_FULL), policy="Restricted"),
        Pod("o", "6", spec=_MUST_FULL, app="web", affinity={}),
        Pod("o2", "4", spec=_MUST_FULL, app="web", affinity={}),
    ),
    "restricted-spread": (
        Machine(),
        Reservation(Pod("r", "4", spec=_MUST_FULL), policy="Restricted"),
        Pod("o", "4", spec=_MUST_SPREAD, app="web", affinity={}),
        Pod("o2", "2", spec=_MUST_SPREAD, app="web", affinity={}),
    ),
    "aligned-reservation": (
        Machine(labels=_numa("SingleNUMANode")),
        Reservation(Pod("r", "6", "4Gi", qos="LS")),
        Pod("p", "6", "4Gi", qos="LS"),
        Pod("q", "4", "1Gi", qos="LS"),
        Pod("o", "4", "1Gi", qos="LS", app="web"),
    ),
    "aligned-restricted": (
        Machine(labels=_numa("SingleNUMANode")),
        Reservation(Pod("r", "4", "4Gi", spec=_FULL), policy="Restricted"),
        Pod("o", "2", "1Gi", spec=_FULL, app="web", affinity={}),
        Pod("o2", "4", "1Gi", spec=_FULL, app="web", affinity={}),
        Pod("o3", "2", "1Gi", spec=_FULL, app="web", affinity={}),
    ),
    "reservation-without-room": (
        Machine(numa_nodes=1),
        Pod("p", "6", spec=_MUST_FULL),
        Reservation(Pod("r", "4", spec=_MUST_FULL)),
    ),
    "ignored": (
        Machine(numa_nodes=1),
        Reservation(Pod("r", "6", spec=_MUST_FULL)),
        Pod("p", "4", spec=_MUST_FULL, labels={"scheduling.koordinator.sh/reservation-ignored": "true"}),
    ),
    "owner-leaves": (
        Machine(),
        Reservation(Pod("r", "4", spec=_MUST_FULL)),
        Pod("o", "4", spec=_MUST_FULL, app="web"),
        Delete("o"),
        Pod("o2", "4", spec=_MUST_FULL, app="web"),
        Pod("p", "12", spec=_MUST_FULL),
    ),
    "unbound-reservation": (
        Machine(),
        Reservation(Pod("r", "4", qos="LS")),
        Pod("o", "4", spec=_FULL, app="web"),
        Pod("p", "12", spec=_FULL),
    ),
}

PREEMPTING: Final[Mapping[str, Scenario]] = {
    "cpus-by-preemption": (
        Machine(numa_nodes=1),
        Pod("p", "8", spec=_MUST_FULL, priority=0),
        Pod("q", "4", spec=_MUST_FULL, priority=10),
    ),
    "zone-by-preemption": (
        Machine(labels=_numa("SingleNUMANode")),
        Pod("p", "6", qos="LS", priority=0),
        Pod("q", "6", qos="LS", priority=5),
        Pod("r", "4", qos="LS", priority=10),
    ),
    "no-preemption-of-equals": (
        Machine(labels=_numa("SingleNUMANode")),
        Pod("p", "6", qos="LS", priority=10),
        Pod("q", "6", qos="LS", priority=10),
        Pod("r", "4", qos="LS", priority=10),
    ),
}


def _scored(*pods: Pod | Reservation, **labels: Mapping[str, str]) -> Scenario:
    """Three nodes of different sizes that are filled to different degrees, and then pods that may go to any of them.
    ``labels`` are those of a node by its name."""
    return (
        Machine("a", numa_nodes=1, labels=labels.get("a", {})),
        Machine("b", labels=labels.get("b", {})),
        Machine("c", cores=7, ratio=1.5 if "amplified" in labels else 1.0, labels=labels.get("c", {})),
        Pod("x", "2", qos="LS", node="a"),
        Pod("y", "4", "2700Mi", node="b"),
        Pod("z", "5", "2Gi", spec=_SPREAD, node="c"),
        *pods,
    )


_REQUESTING: Final = (
    Pod("p", "2", qos="LS"),
    Pod("q", "4", "2Gi", spec=_FULL),
    Pod("r", "3", spec=_SPREAD),
    Pod("s", "2", spec=_MUST_FULL),
    Pod("t", "500m", qos="LS"),
)
_SINGLE: Final = _numa("SingleNUMANode")
SCORING: Final[Mapping[str, Scenario]] = {
    "scores": _scored(*_REQUESTING),
    "scores-aligned": _scored(*_REQUESTING, a=_SINGLE, b=_SINGLE, c=_SINGLE),
    "scores-mixed": _scored(*_REQUESTING, a=_SINGLE, b=_numa("BestEffort")),
    "scores-amplified": _scored(*_REQUESTING, amplified={}, c=_SINGLE),
    "scores-amplified-plain": _scored(*_REQUESTING, amplified={}),
    "scores-bound-by-nodes": _scored(
        Pod("p", "2", qos="LS"), Pod("q", "4", qos="LS"), b=_bind("FullPCPUsOnly"), c=_bind("SpreadByPCPUs")
    ),
    "scores-of-pods": _scored(
        *[
            Pod(f"{number}-{policy.lower()}", "3", qos=qos, numa=_wants(policy, "Preferred"))
            for number, qos in enumerate(("LS", "LSR"))
            for policy in ("BestEffort", "Restricted", "SingleNUMANode")
        ]
    ),
    "scores-reserved": _scored(
        Reservation(Pod("r", "4", spec=_FULL, node="c")),
        Pod("p", "2", spec=_FULL),
        Pod("o", "2", spec=_FULL, app="web"),
        Pod("q", "2", qos="LS"),
        a=_SINGLE,
        c=_SINGLE,
    ),
}

BETTER: Final[Mapping[str, Scenario]] = {
    "broken-topology": (
        Machine(topology={f"{_DOMAIN}/cpu-topology": "{"}),
        Pod("p", "2", spec=_FULL),
        Pod("q", "2", qos="LS"),
    ),
    "unknown-policy-of-node": (Machine(labels=_numa("Somehow")), Pod("p", "2", spec=_FULL)),
    "unknown-policy-of-pod": (Machine(), Pod("p", "2", spec=_FULL, numa=_wants("Somehow"))),
    "broken-spec": (Machine(), Pod("p", "2", spec="{")),
}
"""What ends the original, or an attempt of it, with an error: see differences.md."""
RESTARTED: Final = (Pod("after", "4", spec=_FULL), Pod("after2", "2", spec=_MUST_FULL), Pod("after3", "4", qos="LS"))
"""What each scenario requests once more when the scheduler has been started anew."""
