"""What pods may request of devices, and what the nodes have: each line is played with ours and with the original."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tests.real.devices.stage import (
    Bound,
    Delete,
    Node,
    Pod,
    Reservation,
    Scenario,
    SetDevices,
    eight,
    fpga,
    gpu,
    rdma,
)

_TWO: Final = (gpu(0), gpu(1))
_ONE: Final = {"a": Node(_TWO[:1])}
_PAIR: Final = {"a": Node(_TWO)}
_EIGHT: Final = {"a": Node(eight())}
_H100: Final = {"node.koordinator.sh/gpu-vendor": "nvidia", "node.koordinator.sh/gpu-model": "H100"}
_SHARE: Final = {"gpu-core": "50", "gpu-memory-ratio": "50"}
_WHOLE: Final = {"gpu": "100"}
_QUARTER: Final = {"gpu-core": "25", "gpu-memory-ratio": "25"}


def _gpus(count: int) -> dict[str, str]:
    return {"gpu": str(100 * count)}


def _one(name: str, nodes: Mapping[str, Node], requests: Mapping[str, str], **more: Any) -> Scenario:
    return Scenario(name, nodes, (Pod("p", requests, **more),))


REQUESTS: Final = (
    _one("a whole GPU", _PAIR, _WHOLE),
    _one("two whole GPUs", _PAIR, _gpus(2)),
    _one("more than there are", _PAIR, _gpus(3)),
    _one("nvidia.com/gpu", _PAIR, {"nvidia.com/gpu": "2"}),
    _one("amd.com/gpu", _PAIR, {"amd.com/gpu": "1"}),
    _one("dcu.com/gpu", _PAIR, {"dcu.com/gpu": "1"}),
    _one("a share by percent", _ONE, {"gpu": "30"}),
    _one("a share by core and ratio", _ONE, _SHARE),
    _one("a share by bytes", _ONE, {"gpu-memory": "5Gi"}),
    _one("a share by core and bytes", _ONE, {"gpu-core": "10", "gpu-memory": "5Gi"}),
    _one("memory ratio alone", _ONE, {"gpu-memory-ratio": "40"}),
    _one("a share of each of two", _PAIR, {"gpu.shared": "2", "gpu-core": "100", "gpu-memory-ratio": "100"}),
    _one("bytes of each of two", _PAIR, {"gpu.shared": "2", "gpu-memory": "8Gi"}),
    _one("a share of each of three", _PAIR, {"gpu.shared": "3", "gpu-memory-ratio": "150"}),
    _one("an odd percentage", _PAIR, {"gpu": "150"}),
    _one("cores alone", _PAIR, {"gpu-core": "100"}),
    _one("core and ratio that are odd", _PAIR, {"gpu-core": "150", "gpu-memory-ratio": "150"}),
    _one("shares that are not even", _PAIR, {"gpu.shared": "2", "gpu-memory-ratio": "101"}),
    _one("shares of more than a GPU", _PAIR, {"gpu.shared": "1", "gpu-memory-ratio": "200"}),
    _one("an RDMA card", {"a": Node((rdma(0), rdma(1)))}, {"rdma": "100"}),
    _one("two RDMA cards", {"a": Node((rdma(0), rdma(1)))}, {"rdma": "200"}),
    _one("a part of an RDMA card", {"a": Node((rdma(0),))}, {"rdma": "1"}),
    _one("odd RDMA", {"a": Node((rdma(0),))}, {"rdma": "150"}),
    _one("an FPGA", {"a": Node((fpga(0), fpga(1)))}, {"fpga": "100"}),
    _one("no FPGA there", _PAIR, {"fpga": "100"}),
    _one("no Device object", {"a": Node()}, _WHOLE),
    _one("none is healthy", {"a": Node((gpu(0, health=False),))}, _WHOLE),
    _one("one is healthy", {"a": Node((gpu(0, health=False), gpu(1)))}, _WHOLE),
    _one("a GPU and an RDMA card", {"a": Node((*_TWO, rdma(0)))}, {**_WHOLE, "rdma": "100"}),
    _one("nobody knows where they are", {"a": Node((gpu(0, numa=None), gpu(1, numa=None)))}, _gpus(2)),
    _one("GPUs of different sizes", {"a": Node((gpu(0, memory="8Gi"), gpu(1, memory="24Gi")))}, {"gpu-memory": "12Gi"}),
)

SHARING: Final = (
    Scenario("shares fill one GPU", _PAIR, tuple(Pod(f"p{number}", _SHARE) for number in range(3))),
    Scenario("shares by bytes fill up", _ONE, tuple(Pod(f"p{number}", {"gpu-memory": "8Gi"}) for number in range(3))),
    Scenario("a whole GPU beside a share", _PAIR, (Pod("p", _SHARE), Pod("q", _WHOLE), Pod("r", _WHOLE))),
    Scenario("freed when the pod goes", _ONE, (Pod("p", _WHOLE), Pod("q", _WHOLE), Delete("p"), Bound("q"))),
    Scenario(
        "a GPU falls ill", _PAIR, (Pod("p", _WHOLE), SetDevices("a", (gpu(0, health=False), gpu(1))), Pod("q", _WHOLE))
    ),
    Scenario(
        "a GPU gets well",
        {"a": Node((gpu(0, health=False),))},
        (Pod("p", _WHOLE), SetDevices("a", (gpu(0),)), Bound("p")),
    ),
    Scenario("the Device object goes", _PAIR, (Pod("p", _WHOLE), Delete("a", "Device"), Pod("q", _WHOLE))),
    Scenario("the emptier node", {"a": Node(_TWO), "b": Node(eight())}, (Pod("p", _WHOLE, node="a"), Pod("q", _WHOLE))),
    Scenario(
        "RDMA cards are shared",
        {"a": Node((rdma(0), rdma(1)))},
        (*(Pod(f"p{number}", {"rdma": "50"}) for number in range(5)),),
    ),
)

TOPOLOGY: Final = (
    _one("two on a switch", _EIGHT, _gpus(2)),
    _one("four on a NUMA node", _EIGHT, _gpus(4)),
    _one("three on a NUMA node", _EIGHT, _gpus(3)),
    _one("eight", _EIGHT, _gpus(8)),
    Scenario(
        "packed beside others", _EIGHT, (Pod("p", _WHOLE), Pod("q", _WHOLE), Pod("r", _gpus(2)), Pod("s", _gpus(4)))
    ),
    Scenario("spread over switches when need be", _EIGHT, (*(Pod(f"p{n}", _gpus(3)) for n in range(3)),)),
    Scenario("a share beside shares", _EIGHT, (Pod("p", _SHARE), Pod("q", _SHARE), Pod("r", _WHOLE), Pod("s", _SHARE))),
    _one(
        "a scope that is too small",
        _EIGHT,
        _gpus(4),
        annotations={"device-allocate-hint": {"gpu": {"requiredTopologyScope": "PCIe"}}},
    ),
    _one(
        "a scope that is large enough",
        _EIGHT,
        _gpus(4),
        annotations={"device-allocate-hint": {"gpu": {"requiredTopologyScope": "NUMANode"}}},
    ),
    _one(
        "a scope without topology",
        {"a": Node((gpu(0, numa=None),))},
        _WHOLE,
        annotations={"device-allocate-hint": {"gpu": {"requiredTopologyScope": "NUMANode"}}},
    ),
    _one(
        "a scope for shares of several",
        _PAIR,
        {"gpu.shared": "2", "gpu-memory-ratio": "100"},
        annotations={"device-allocate-hint": {"gpu": {"requiredTopologyScope": "Node"}}},
    ),
)

_TABLE: Final = json.dumps(
    {
        "1": [{"minors": [minor], "gpuLinkType": "NVLink", "allocationScore": 1} for minor in range(8)],
        "2": [
            {"minors": [2, 3], "gpuLinkType": "NVLink", "ringBusBandwidth": "200Gi", "allocationScore": 1},
            {"minors": [0, 1], "gpuLinkType": "NVLink", "ringBusBandwidth": "100Gi", "allocationScore": 1},
        ],
    }
)
_HONOR: Final = {"node.koordinator.sh/gpu-partition-policy": "Honor"}
_WITH_TABLE: Final = {"scheduling.koordinator.sh/gpu-partitions": _TABLE}

PARTITIONS: Final = (
    _one("a partition of the model", {"a": Node(eight(), _H100)}, _gpus(2), annotations={"gpu-partition-spec": {}}),
    Scenario(
        "partitions are packed",
        {"a": Node(eight(), _H100)},
        tuple(
            Pod(f"p{n}", _gpus(count), annotations={"gpu-partition-spec": {}})
            for n, count in enumerate((1, 2, 4, 1, 2))
        ),
    ),
    _one("no partition of three", {"a": Node(eight(), _H100)}, _gpus(3), annotations={"gpu-partition-spec": {}}),
    _one("three without a partition", {"a": Node(eight(), _H100)}, _gpus(3)),
    _one("no table", _EIGHT, _gpus(2), annotations={"gpu-partition-spec": {}}),
    _one("a table of the Device", {"a": Node(eight(), device_annotations=_WITH_TABLE)}, _gpus(2)),
    _one(
        "enough bandwidth",
        {"a": Node(eight(), device_annotations=_WITH_TABLE)},
        _gpus(2),
        annotations={"gpu-partition-spec": {"ringBusBandwidth": "150Gi"}},
    ),
    _one(
        "too little bandwidth",
        {"a": Node(eight(), device_annotations=_WITH_TABLE)},
        _gpus(2),
        annotations={"gpu-partition-spec": {"ringBusBandwidth": "300Gi"}},
    ),
    _one(
        "the node honors partitions",
        {"a": Node(eight(), device_annotations=_WITH_TABLE, device_labels=_HONOR)},
        _gpus(4),
    ),
    _one("the node's label honors partitions", {"a": Node(eight(), {**_H100, **_HONOR})}, _gpus(3)),
    Scenario(
        "a used GPU is in no partition",
        {"a": Node(eight(), _H100)},
        (Pod("p", _QUARTER), Pod("q", _gpus(8), annotations={"gpu-partition-spec": {}})),
    ),
    _one("a spec that cannot be read", _PAIR, _WHOLE, annotations={"gpu-partition-spec": "{"}),
)

_CARDS: Final = tuple(rdma(minor, numa=minor // 2, pcie=str(minor), functions=2) for minor in range(4))
_BOTH: Final = {"a": Node((*eight(), *_CARDS))}
_JOINT: Final = {"device-joint-allocate": {"deviceTypes": ["gpu", "rdma"]}}
_SAME: Final = {"device-joint-allocate": {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}}
_FUNCTION: Final[Mapping[str, Any]] = {"device-allocate-hint": {"rdma": {"vfSelector": {}}}}


def _labelled(minor: int, kind: str) -> dict[str, Any]:
    return rdma(minor, pcie=str(minor), labels={"kind": kind})


TOGETHER: Final = (
    _one("GPUs and cards on a switch", _BOTH, {**_gpus(2), "rdma": "100"}, annotations=_JOINT),
    _one("a card for each switch", _BOTH, {**_gpus(4), "rdma": "1"}, annotations=_JOINT),
    _one("on the same switches", _BOTH, {**_gpus(4), "rdma": "100"}, annotations=_SAME),
    Scenario(
        "not on the same switch",
        {"a": Node((*eight(), *_CARDS[1:]))},
        (Pod("p", {**_gpus(2), "rdma": "100"}, annotations=_SAME),),
    ),
    _one(
        "the card first",
        _BOTH,
        {**_gpus(1), "rdma": "100"},
        annotations={"device-joint-allocate": {"deviceTypes": ["rdma", "gpu"]}},
    ),
    _one("joint of what is not requested", _BOTH, _gpus(1), annotations=_JOINT),
    _one("a virtual function", _BOTH, {"rdma": "1"}, annotations=_FUNCTION),
    Scenario(
        "virtual functions run out",
        {"a": Node((rdma(0, functions=2),))},
        tuple(Pod(f"p{n}", {"rdma": "1"}, annotations=_FUNCTION) for n in range(3)),
    ),
    _one("no virtual functions", {"a": Node((rdma(0),))}, {"rdma": "1"}, annotations=_FUNCTION),
    _one(
        "functions with GPUs",
        _BOTH,
        {**_gpus(2), "rdma": "1"},
        annotations={**_SAME, **_FUNCTION},
    ),
    _one(
        "functions of another kind",
        _BOTH,
        {"rdma": "1"},
        annotations={"device-allocate-hint": {"rdma": {"vfSelector": {"matchLabels": {"speed": "slow"}}}}},
    ),
    _one(
        "selected cards",
        {"a": Node((_labelled(0, "storage"), _labelled(1, "worker")))},
        {"rdma": "50"},
        annotations={"device-allocate-hint": {"rdma": {"selector": {"matchLabels": {"kind": "worker"}}}}},
    ),
    _one(
        "all selected cards",
        {"a": Node((_labelled(0, "storage"), _labelled(1, "worker"), _labelled(2, "worker")))},
        {"rdma": "5"},
        annotations={
            "device-allocate-hint": {
                "rdma": {"allocateStrategy": "ApplyForAll", "selector": {"matchLabels": {"kind": "worker"}}}
            }
        },
    ),
    _one(
        "all cards, of which none is selected",
        {"a": Node((_labelled(0, "storage"),))},
        {"rdma": "5"},
        annotations={
            "device-allocate-hint": {
                "rdma": {"allocateStrategy": "ApplyForAll", "selector": {"matchLabels": {"kind": "worker"}}}
            }
        },
    ),
    _one(
        "so many cards",
        {"a": Node((rdma(0), rdma(1), rdma(2)))},
        {"rdma": "2"},
        annotations={"device-allocate-hint": {"rdma": {"allocateStrategy": "RequestsAsCount"}}},
    ),
    Scenario(
        "so many cards for itself",
        {"a": Node((rdma(0), rdma(1)))},
        (
            Pod("p", {"rdma": "10"}),
            Pod(
                "q",
                {"rdma": "2"},
                annotations={
                    "device-allocate-hint": {
                        "rdma": {"allocateStrategy": "RequestsAsCount", "exclusivePolicy": "DeviceLevel"}
                    }
                },
            ),
        ),
    ),
    _one("a hint that cannot be read", _PAIR, _WHOLE, annotations={"device-allocate-hint": "{"}),
    _one(
        "well planned, and it does not fit all the same",
        {
            "a": Node(
                (*eight(), *_CARDS[1:]), device_labels={"node.koordinator.sh/secondary-device-well-planned": "true"}
            )
        },
        {**_gpus(2), "rdma": "100"},
        annotations=_SAME,
    ),
)

LABELS: Final = (
    _one(
        "a model that is not shared",
        {"a": Node(_TWO, {"node.koordinator.sh/gpu-vendor": "acme", "node.koordinator.sh/gpu-model": "X1"})},
        _SHARE,
    ),
    _one(
        "a whole one of that model",
        {"a": Node(_TWO, {"node.koordinator.sh/gpu-vendor": "acme", "node.koordinator.sh/gpu-model": "X1"})},
        _WHOLE,
    ),
    _one(
        "the isolation is there",
        {"a": Node(_TWO, {"koordinator.sh/gpu-isolation-provider": "HAMi-core"})},
        _SHARE,
        labels={"koordinator.sh/gpu-isolation-provider": "HAMi-core"},
    ),
)

_SHARED: Final[Mapping[str, Any]] = {"allocateOnce": False}
_RESTRICTED: Final[Mapping[str, Any]] = {"allocateOnce": False, "allocatePolicy": "Restricted"}
_ALIGNED: Final[Mapping[str, Any]] = {"allocateOnce": False, "allocatePolicy": "Aligned"}
_CPU: Final = {"cpu": "1", "memory": "1Gi"}


def _owner(name: str, reservation: str, requests: Mapping[str, str], *, required: bool = False, **more: Any) -> Pod:
    """A pod that may take from the Reservation."""
    affinity = {"reservationSelector": {"for": reservation}}
    annotations = {**({"reservation-affinity": affinity} if required else {}), **more.pop("annotations", {})}
    return Pod(name, requests, annotations=annotations, labels={"app": reservation}, **more)


def _reserving(name: str, requests: Mapping[str, str], **more: Any) -> Reservation:
    spec = more.pop("spec", _SHARED)
    return Reservation(name, {**_CPU, **requests}, spec=spec, labels={"for": name}, **more)


_SPREAD: Final = {"a": Node((gpu(0, numa=None), gpu(1, numa=None)))}
"""Nobody knows where the GPUs are, so that the Reservation's come first."""
_TAKING: Final[Mapping[str, Any]] = {"preAllocation": True, "allocatePolicy": "Restricted", "allocateOnce": False}

RESERVED: Final = (
    Scenario("a Reservation holds devices", _PAIR, (_reserving("r", _gpus(2)), Pod("p", _WHOLE))),
    Scenario("an owner takes them", _PAIR, (_reserving("r", _gpus(2)), _owner("p", "r", {**_CPU, **_WHOLE}))),
    Scenario(
        "the owner gets the reserved one",
        _SPREAD,
        (Pod("x", _WHOLE), _reserving("r", _WHOLE), Delete("x"), _owner("p", "r", {**_CPU, **_WHOLE})),
    ),
    Scenario(
        "owners share what is reserved",
        _ONE,
        (_reserving("r", _WHOLE), *(_owner(f"p{n}", "r", _SHARE, required=True) for n in range(3))),
    ),
    Scenario(
        "a restricted one has too little",
        _PAIR,
        (_reserving("r", _WHOLE, spec=_RESTRICTED), _owner("p", "r", _gpus(2), required=True)),
    ),
    Scenario(
        "an aligned one is filled up by the node",
        _PAIR,
        (_reserving("r", _WHOLE, spec=_ALIGNED), _owner("p", "r", _gpus(2), required=True)),
    ),
    Scenario(
        "it cannot be placed",
        _ONE,
        (Pod("x", _SHARE), _reserving("r", _WHOLE), Delete("x"), Pod("p", _SHARE, node="a")),
    ),
    Scenario(
        "deleted, its devices are free",
        _ONE,
        (_reserving("r", _WHOLE), Pod("p", _WHOLE), Delete("r", "Reservation"), Bound("p")),
    ),
    Scenario(
        "who ignores Reservations takes their devices",
        _ONE,
        (_reserving("r", _WHOLE), Pod("p", _WHOLE, labels={"scheduling.koordinator.sh/reservation-ignored": "true"})),
    ),
    Scenario(
        "a card with a function is reserved",
        {"a": Node((rdma(0, functions=1),))},
        (_reserving("r", {"rdma": "50"}, annotations=_FUNCTION), Pod("p", {"rdma": "1"}, annotations=_FUNCTION)),
    ),
    Scenario(
        "it takes over a pod's device",
        _PAIR,
        (
            Pod("r", {**_CPU, **_WHOLE}),
            Reservation("r", {"cpu": "2", "memory": "2Gi", **_WHOLE}, spec=_TAKING),
        ),
    ),
)

_CHOSEN: Final = {
    "internal.scheduling.koordinator.sh/scheduling-hint": {"extensions": {"DeviceShare": {}}},
    "device-allocated": {
        "gpu": [{"minor": 1, "resources": {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}}]
    },
}

CHOSEN: Final = (
    _one("another scheduler has chosen", _SPREAD, _WHOLE, annotations=_CHOSEN),
    Scenario(
        "what another scheduler has chosen is taken",
        _SPREAD,
        (Pod("p", _WHOLE, annotations=_CHOSEN), Pod("q", _WHOLE, annotations=_CHOSEN)),
    ),
    _one(
        "what was chosen is no matter without a hint",
        _SPREAD,
        _WHOLE,
        annotations={"device-allocated": _CHOSEN["device-allocated"]},
    ),
)

_IMPORTANT: Final[Mapping[str, Any]] = {"priorityClassName": "p10"}

PREEMPTING: Final = (
    Scenario("a pod leaves its GPU", _ONE, (Pod("p", _WHOLE), Pod("q", _WHOLE, spec=_IMPORTANT), Bound("q"))),
    Scenario(
        "the least important share leaves",
        _ONE,
        (
            Pod("p", _SHARE, spec={"priorityClassName": "p5"}),
            Pod("q", _SHARE),
            Pod("r", _SHARE, spec=_IMPORTANT),
            Bound("r"),
        ),
    ),
    Scenario("nobody leaves in vain", _ONE, (Pod("p", _SHARE), Pod("q", _gpus(2), spec=_IMPORTANT))),
    Scenario(
        "nobody leaves for a virtual function where there is none",
        {"a": Node((rdma(0),))},
        (Pod("p", {"rdma": "10"}), Pod("q", {"rdma": "10"}, annotations=_FUNCTION, spec=_IMPORTANT)),
    ),
    Scenario(
        "a partition is made free",
        {"a": Node(eight(), _H100)},
        (
            *(Pod(f"p{number}", _WHOLE) for number in range(3)),
            Pod("q", _gpus(4), annotations={"gpu-partition-spec": {}}, spec={"priorityClassName": "p5"}),
            Pod("r", _gpus(4), annotations={"gpu-partition-spec": {}}, spec=_IMPORTANT),
            Bound("r"),
        ),
    ),
)
"""With DefaultPreemption."""


def _numa(policy: str, *devices: Mapping[str, Any]) -> dict[str, Node]:
    """A node of two NUMA nodes with eight CPUs each."""
    return {"a": Node(devices or eight(), {"node.koordinator.sh/numa-topology-policy": policy}, cpus=8)}


def _bound(name: str, cpu: str, requests: Mapping[str, str], **more: Any) -> Pod:
    """A pod with CPUs of its own."""
    labels = {"koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "koord-prod"}
    return Pod(name, {"cpu": cpu, "memory": "1Gi", **requests}, labels=labels, **more)


_FIRST_ONLY: Final = tuple(gpu(minor, numa=0, pcie=str(minor // 2)) for minor in range(4))

ALIGNED: Final = (
    Scenario("CPUs beside the GPU", _numa("SingleNUMANode"), (_bound("p", "2", _WHOLE), _bound("q", "4", _gpus(2)))),
    Scenario(
        "the GPUs decide",
        _numa("SingleNUMANode"),
        (Pod("x", _gpus(3)), _bound("p", "4", _gpus(4)), _bound("q", "2", _WHOLE)),
    ),
    Scenario(
        "the CPUs of that NUMA node are taken",
        _numa("SingleNUMANode", *_FIRST_ONLY),
        (_bound("x", "6", _WHOLE), _bound("p", "4", _WHOLE)),
    ),
    Scenario("more GPUs than a NUMA node has", _numa("SingleNUMANode"), (_bound("p", "2", _gpus(5)),)),
    Scenario("more GPUs than a NUMA node has, restricted", _numa("Restricted"), (_bound("p", "2", _gpus(5)),)),
    Scenario("as well as can be", _numa("BestEffort"), (_bound("p", "2", _gpus(5)), _bound("q", "2", _gpus(3)))),
    Scenario("no CPUs of its own", _numa("SingleNUMANode"), (Pod("p", {"cpu": "2", "memory": "1Gi", **_gpus(2)}),)),
    Scenario(
        "GPUs and cards", _numa("SingleNUMANode", *eight(), *_CARDS[:2]), (_bound("p", "2", {**_WHOLE, "rdma": "10"}),)
    ),
    Scenario(
        "a pod that wants one NUMA node",
        {"a": Node(eight(), cpus=8)},
        (_bound("p", "2", _gpus(2), annotations={"numa-topology-spec": {"numaTopologyPolicy": "SingleNUMANode"}}),),
    ),
)
"""With NodeNUMAResource."""


def _vendor(vendor: str, model: str, *devices: Mapping[str, Any]) -> dict[str, Node]:
    labels = {"node.koordinator.sh/gpu-vendor": vendor, "node.koordinator.sh/gpu-model": model}
    return {"a": Node(devices, labels, labels)}


def _npu(minor: int) -> dict[str, Any]:
    amounts = {"huawei.com/npu-core": "20", "huawei.com/npu-cpu": "7", "huawei.com/npu-dvpp": "100"}
    whole = gpu(minor, memory="32Gi", pcie=str(minor))
    return {**whole, "resources": {**whole["resources"], **amounts}}


TEMPLATES: Final = (
    "huawei-Ascend-910B: {vir05_1c_8g: {huawei.com/npu-core: 5, huawei.com/npu-cpu: 1, koordinator.sh/gpu-memory: 8Gi}}"
)
"""The ConfigMap of templates."""
_VIRTUAL: Final = {"gpu.shared": "1", "huawei.com/npu-core": "5", "huawei.com/npu-cpu": "1", "gpu-memory": "8Gi"}
_NPUS: Final = _vendor("huawei", "Ascend-910B", _npu(0), _npu(1))
_ON_DEVICE_SIDE: Final = {"gpu-core": "30", "gpu-memory": "4Gi"}

VENDORS: Final = (
    _one("a share that is a template", _NPUS, _VIRTUAL),
    _one("a share that is no template", _NPUS, {**_VIRTUAL, "huawei.com/npu-core": "4"}),
    _one("a template of another model", _vendor("huawei", "Ascend-310P", _npu(0)), _VIRTUAL),
    _one("two NPUs", _NPUS, _gpus(2)),
    _one("NPUs of the 310P", _vendor("huawei", "Ascend-310P3-300I-DUO", _npu(0), _npu(1)), _gpus(2)),
    _one("a share of an MLU", _vendor("cambricon", "MLU370", *_TWO), _ON_DEVICE_SIDE),
    _one("a share of a GPU of MetaX", _vendor("metax", "C500", *_TWO), _ON_DEVICE_SIDE),
    _one("two GPUs of MetaX", _vendor("metax", "C500", *_TWO), _gpus(2)),
    _one(
        "a GPU that HAMi isolates",
        {"a": Node(_TWO, {"koordinator.sh/gpu-isolation-provider": "HAMi-core"})},
        _SHARE,
        labels={"koordinator.sh/gpu-isolation-provider": "HAMi-core"},
    ),
    Scenario("a Reservation is resized", _PAIR, (_reserving("r", _WHOLE), _owner("p", "r", {**_CPU, **_WHOLE}))),
    Scenario(
        "a Reservation of a share is resized",
        _PAIR,
        (_reserving("r", {"gpu-memory": "8Gi"}), _owner("p", "r", {**_CPU, "gpu-memory": "4Gi"}, required=True)),
    ),
)
"""With the gates DevicePluginAdaption and ResizePod."""
