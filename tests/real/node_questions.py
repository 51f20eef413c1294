"""Random nodes and SLO ConfigMaps, and what webhooks are queried about them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from koordinator.api.annotations import RAW_ALLOCATABLE, RESOURCE_AMPLIFICATION_RATIO
from koordinator.api.document import Document

_CPU = ("0", "1", "1001m", "64", "7910m", "0.5", 8)
_MEMORY = ("0", "1", "16Gi", "16393244Ki", "12345678901", "1e3", "64G", 1024)
_RATIOS = (0, 0.5, 1, 1.0, 1.01, 1.1, 1.33, 1.5, 2, 3.14159, 10)
_UNREADABLE = ("{", "[]", '"2"', "2", '{"cpu":"2"}', '{"cpu":"much"}', "x")
_LABELS = ("xxx", "yyy", "zzz")


def node_annotations(random: Random) -> Document:
    """Of what a node has and how much more it is to show."""
    found: Document = {"other": "kept"}
    if random.random() < 0.85:
        names = random.sample(("cpu", "memory", "ephemeral-storage"), random.randint(0, 3))
        ratios = json.dumps({name: random.choice(_RATIOS) for name in names})
        found[RESOURCE_AMPLIFICATION_RATIO] = random.choice((ratios,) * 8 + ("", "null", random.choice(_UNREADABLE)))
    if random.random() < 0.6:
        raw = json.dumps({"cpu": str(random.choice(_CPU)), "memory": str(random.choice(_MEMORY))})
        found[RAW_ALLOCATABLE] = random.choice((raw,) * 8 + ("{}", "null", random.choice(_UNREADABLE)))
    return found


def allocatable(random: Random) -> Document:
    found: dict[str, Any] = {"cpu": random.choice(_CPU), "memory": random.choice(_MEMORY), "pods": "110"}
    return {name: amount for name, amount in found.items() if random.random() < 0.9}


def node(labels: Document, status: Document, metadata: Document | None = None) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": labels, **(metadata or {})},
        "spec": {},
        "status": status,
    }


def status_updates(seed: int, count: int) -> Iterator[tuple[Document, Document]]:
    """(what is to be stored, what was there)."""
    random = Random(seed)
    for _ in range(count):
        metadata = {"annotations": node_annotations(random)}
        before = allocatable(random)
        now = before if random.random() < 0.5 else allocatable(random)
        status: Document = {} if random.random() < 0.05 else {"allocatable": now}
        yield node({}, status, metadata), node({}, {"allocatable": before}, metadata)


def labels(random: Random) -> Document:
    return {label: random.choice(("1", "2")) for label in _LABELS if random.random() < 0.6}


def configurations(seed: int, count: int) -> Iterator[Document]:
    """The data of SLO ConfigMaps with groups that may overlap and fields that may be out of range."""
    random = Random(seed)
    for _ in range(count):
        groups = [_group(random, f"g{number}") for number in range(random.randint(0, 3))]
        strategy = {"enable": True, **_fields(random), "nodeConfigs": groups}
        yield {"colocation-config": random.choice((json.dumps(strategy),) * 12 + ("{", "[]"))}


def _group(random: Random, name: str) -> Document:
    chosen = random.sample(_LABELS, random.choice((1, 1, 2))) if random.random() < 0.95 else []
    selector = {label: random.choice(("1", "2")) for label in chosen}
    return {"name": name, "nodeSelector": {"matchLabels": selector}, **_fields(random)}


def _fields(random: Random) -> Document:
    percent = (0, 1, 50, 100) * 12 + (-1, 101)
    found = {
        "cpuReclaimThresholdPercent": random.choice(percent),
        "memoryReclaimThresholdPercent": random.choice(percent),
        "degradeTimeMinutes": random.choice((1, 15) * 12 + (0, -5)),
        "metricAggregateDurationSeconds": random.choice((1, 60) * 12 + (0, -1)),
    }
    return {name: value for name, value in found.items() if random.random() < 0.4}
