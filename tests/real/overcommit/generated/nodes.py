"""Nodes by chance, with all that koord-manager looks at for them."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from tests.real.overcommit.generated import quantities, reports, workloads
from tests.real.overcommit.generated.configurations import MODELS, POOLS, TIERS, colocation_fields
from tests.real.overcommit.generated.mistakes import Mistake, mistaken
from tests.real.overcommit.node_case import Document, NodeCase, NodeWords, node_case

LARGE_DIFFERENCE: Final = 0.5
"""By this share of an amount some nodes may differ from what they should say."""
_RATIOS: Final = ("0", "0.25", "0.5", "0.75", "1", "1.25", ".5", "5.", "0.7", "much", "-1", "1e-1", "25e-2", "0.999")
_LEFT_OVER: Final = {
    "kubernetes.io/batch-cpu": "777",
    "kubernetes.io/batch-memory": "1Gi",
    "kubernetes.io/mid-cpu": "3",
    "kubernetes.io/mid-memory": "1500M",
}
_BOOLEANS: Final = ("true", "false", "T", "0", "perhaps", "")
_VENDORS: Final = ("", "nvidia", "huawei", "amd")
_RESERVATIONS: Final = ("", "{]", "{}", "[]", "null", '{"reservedCPUs":""}', '{"resources":{"cpu":2}}')


def node(chance: Random, name: str) -> NodeCase:
    cores, gibibytes = chance.choice([(4, 8), (32, 64), (64, 128), (96, 384), (100, 120), (128, 512)])
    capacity = {"cpu": str(cores), "memory": f"{gibibytes}Gi"}
    if chance.random() < 0.4:
        cpu = quantities.cpu(chance, cores, cores * 3 // 4)
        capacity = {"cpu": cpu, "memory": quantities.memory(chance, gibibytes, gibibytes * 3 // 4)}
    topology = _topology(chance, cores, gibibytes) if chance.random() < 0.5 else None
    pods = workloads.pods(chance, name, len(topology["zones"]) if topology is not None else 2)
    is_measured = chance.random() < 0.95
    words = NodeWords(capacity, _allocatable(chance, cores, gibibytes, capacity), _offers(chance))
    metrics = workloads.pod_metrics(chance, pods, are_all_measured=chance.random() < 0.7)
    return node_case(
        name,
        words=words,
        labels=_labels(chance),
        annotations=_annotations(chance, cores, gibibytes),
        strategy=_strategy(chance),
        pods=pods,
        said=reports.report(chance, cores, gibibytes, metrics),
        is_measured=is_measured,
        age=reports.age(chance),
        topology=topology,
        devices=_devices(chance) if chance.random() < 0.3 else None,
    )


def _offers(chance: Random) -> dict[str, str]:
    offers = dict(_LEFT_OVER) if chance.random() < 0.15 else {}
    if chance.random() < 0.05:
        offers |= {"koordinator.sh/gpu": "100", "koordinator.sh/gpu-core": "100", "koordinator.sh/rdma": "300"}
    return offers


def _allocatable(chance: Random, cores: int, gibibytes: int, capacity: dict[str, str]) -> dict[str, str] | None:
    match chance.randrange(20):
        case 0 | 1 | 2 | 3 | 4 | 5:
            cpu = quantities.cpu(chance, cores, cores * 3 // 4)
            return {"cpu": cpu, "memory": quantities.memory(chance, gibibytes, gibibytes * 3 // 4)}
        case 6:
            return {"cpu": "200", "memory": "1Ti"}
        case 7:
            return {**capacity, chance.choice(["cpu", "memory"]): "0"}
        case 8:
            return {key: capacity[key] for key in [chance.choice(["cpu", "memory"])]}
        case _:
            return None


def _labels(chance: Random) -> dict[str, str]:
    labels = {"pool": chance.choice(POOLS)} if chance.random() < 0.9 else {}
    if chance.random() < 0.6:
        labels["tier"] = chance.choice(TIERS)
    for key in (
        label_keys.CPU_RECLAIM_RATIO,
        label_keys.MEMORY_RECLAIM_RATIO,
        label_keys.MID_STATIC_CPU_RESERVED_RATIO,
        label_keys.MID_STATIC_MEMORY_RESERVED_RATIO,
    ):
        if chance.random() < 0.08:
            labels[key] = chance.choice(
                [text for text in _RATIOS if not text.startswith(("-", ".")) and text[-1] != "."]
            )
    if chance.random() < 0.1:
        labels[label_keys.CPU_NORMALIZATION_ENABLED] = chance.choice(_BOOLEANS)
    if chance.random() < 0.05:
        labels[label_keys.GPU_MODEL] = "old"
    return labels


def _annotations(chance: Random, cores: int, gibibytes: int) -> dict[str, str]:
    annotations = {}
    if chance.random() < 0.25:
        annotations[annotation_keys.NODE_RESERVATION] = _reservation(chance, cores, gibibytes)
    if chance.random() < 0.1:
        annotations[annotation_keys.THIRD_PARTY_ALLOCATIONS] = _third_party(chance)
    if chance.random() < 0.1:
        annotations[annotation_keys.ORIGIN_EXTENDED_ALLOCATABLE] = chance.choice(
            [
                "",
                "{}",
                '{"resources":{"example.com/other":"3","kubernetes.io/batch-cpu":"1"}}',
                '{"resources":null}',
                "{]",
            ]
        )
    if chance.random() < 0.1:
        annotations[annotation_keys.CPU_NORMALIZATION_RATIO] = chance.choice(["1.50", "1.00", "2", "1.105", "0.5"])
    if chance.random() < 0.1:
        annotations[annotation_keys.RESOURCE_AMPLIFICATION_RATIO] = chance.choice(['{"cpu":9.00}', "{}", "{]", ""])
    if chance.random() < 0.1:
        annotations[annotation_keys.NETWORK_BANDWIDTH] = chance.choice(["25M", "1G", "1e9", "0.5Gi", "0"])
    return annotations


def _strategy(chance: Random) -> dict[str, Any] | str | None:
    drawn = chance.random()
    if drawn < 0.7:
        return None
    if drawn < 0.75:
        return Mistake(
            chance.choice(["", "{]", "null", "[]", "{}", '{"cpuReclaimThresholdPercent":"7"}', '{"ENABLE":true}'])
        )
    fields = colocation_fields(chance, 0.2)
    if drawn < 0.8:
        return mistaken(chance, fields)
    return {**fields, "resourceDiffThreshold": LARGE_DIFFERENCE} if chance.random() < 0.2 else fields


def _reservation(chance: Random, cores: int, gibibytes: int) -> str:
    if chance.random() < 0.2:
        return chance.choice(_RESERVATIONS)
    words: Document = {}
    if chance.random() < 0.7:
        words["resources"] = quantities.pair(chance, max(cores // 4, 1), max(gibibytes // 4, 1))
    if chance.random() < 0.4:
        words["reservedCPUs"] = chance.choice(["0", "0-3", "0-1,3", "1,1,1", "0-7,4-9", "3-0", "0-x", " 1", "2,"])
    if chance.random() < 0.4:
        words["applyPolicy"] = chance.choice(["", "Default", "ReservedCPUsOnly"])
    if chance.random() < 0.1:
        return mistaken(chance, words)
    return json.dumps(words)


def _third_party(chance: Random) -> str:
    if chance.random() < 0.2:
        return chance.choice(["{]", "", "{}", '{"allocations":null}', '{"allocations":[{}]}'])
    allocations = [
        {
            "name": f"yarn-{number}",
            "priority": chance.choice(["koord-batch", "koord-batch", "koord-mid", ""]),
            "resources": {
                "kubernetes.io/batch-cpu": str(chance.randrange(20_000)),
                "kubernetes.io/batch-memory": quantities.memory(chance, 20),
            },
        }
        for number in range(chance.choice([1, 1, 2]))
    ]
    if chance.random() < 0.2:
        allocations[0]["resources"] = {"kubernetes.io/batch-cpu": "1.5"}
    return json.dumps({"allocations": allocations})


def _topology(chance: Random, cores: int, gibibytes: int) -> Document:
    count = chance.choice([0, 1, 2, 2, 2, 3, 4])
    zones = [
        _zone(chance, number, max(cores // max(count, 1), 1), max(gibibytes // max(count, 1), 1))
        for number in range(count)
    ]
    if chance.random() < 0.1:
        for zone, name in zip(zones, ("left", "right", "node-x", "socket"), strict=False):
            zone["name"] = name
    annotations = {}
    if chance.random() < 0.7:
        info = {"cpuModel": chance.choice([*MODELS, "unknown"]), "hyperThreadEnabled": chance.random() < 0.5}
        info["turboEnabled"] = chance.random() < 0.5
        annotations[annotation_keys.CPU_BASIC_INFO] = json.dumps(info)
    elif chance.random() < 0.5:
        annotations[annotation_keys.CPU_BASIC_INFO] = chance.choice(["", "{]", "{}", "null", '{"cpuModel":7}'])
    return {"metadata": {"annotations": annotations}, "topologyPolicies": ["None"], "zones": zones}


def _zone(chance: Random, number: int, cores: int, gibibytes: int) -> Document:
    amounts = {"cpu": str(cores), "memory": f"{gibibytes}Gi"}
    if chance.random() < 0.3:
        amounts = quantities.pair(chance, cores, gibibytes)
    if chance.random() < 0.1:
        amounts |= {"kubernetes.io/batch-cpu": "9", "kubernetes.io/batch-memory": "1Gi"}
    if chance.random() < 0.05:
        amounts["nvidia.com/gpu"] = "4"
    resources = [
        {"name": name, "capacity": text, "allocatable": text, "available": text}
        for name, text in sorted(amounts.items())
    ]
    if resources and chance.random() < 0.1:
        resources[0]["capacity"] = "1k"
    return {"name": f"node-{number}", "type": "Node", "resources": resources}


def _devices(chance: Random) -> Document:
    made = [_device(chance, number) for number in range(chance.choice([0, 1, 2, 3, 8]))]
    vendor = chance.choice(_VENDORS)
    labels = {label_keys.GPU_VENDOR: vendor} if vendor or chance.random() < 0.3 else {}
    if chance.random() < 0.5:
        labels[label_keys.GPU_MODEL] = chance.choice(["A100", "H200", ""])
    if chance.random() < 0.5:
        labels[label_keys.GPU_DRIVER_VERSION] = "550.1"
    return {"metadata": {"labels": labels}, "spec": {"devices": made}}


def _device(chance: Random, number: int) -> Document:
    kind = chance.choice(["gpu", "gpu", "gpu", "rdma", "rdma", "fpga", "xpu"])
    device: Document = {"type": kind, "minor": number, "health": chance.random() < 0.8}
    if kind == "gpu":
        resources = {
            "koordinator.sh/gpu-core": chance.choice(["100", "50", 100, "1e2"]),
            "koordinator.sh/gpu-memory": chance.choice(["80Gi", "16000Mi", "40G", 85899345920]),
            "koordinator.sh/gpu-memory-ratio": "100",
            "huawei.com/npu-core": "20",
            "huawei.com/npu-cpu": "14",
            "huawei.com/npu-dvpp": "100",
            "example.com/lanes": "4",
        }
        device["resources"] = {name: text for name, text in resources.items() if chance.random() < 0.6}
    elif kind == "rdma" and chance.random() < 0.7:
        device["resources"] = {"koordinator.sh/rdma": "100"}
        device["vfGroups"] = [{"vfs": [{"minor": 0, "busID": "0000:01:00.2"}]}]
    return device
