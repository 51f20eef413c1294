"""Pods by chance, and what the agent of their node says of them."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from tests.real.overcommit.cluster_objects import PRIORITY_CLASSES, RUNTIME_CLASSES
from tests.real.overcommit.generated import quantities
from tests.real.overcommit.node_case import POD_NAMESPACE, Document, PodOnNode

_PRIORITIES: Final = ("", "", *PRIORITY_CLASSES, "system-node-critical")
_CLASSES: Final = ("koord-prod", "koord-mid", "koord-batch", "koord-free", "")
_QUALITIES: Final = ("", "", "LSE", "LSR", "LS", "LS", "BE", "SYSTEM", "bogus")
_PHASES: Final = ("Running",) * 8 + ("Pending",) * 2 + ("Succeeded", "Failed", "Unknown")
_LARGEST: Final = (3, 4)
"""Cores and gibibytes of a container."""


def pods(chance: Random, node: str, zones: int) -> list[PodOnNode]:
    count = chance.choice([0, 1, 2, 3, 4, 5, 8])
    return [_pod(chance, f"{node}-{number}", zones) for number in range(count)]


def pod_metrics(chance: Random, of: list[PodOnNode], are_all_measured: bool) -> list[Document]:
    """Reports of pods; of some that are gone, too, and of some that have not been measured yet, none."""
    measured = [each for each in of if are_all_measured or chance.random() < 0.8]
    found = [_pod_metric(chance, each.document["metadata"]["name"]) for each in measured]
    found += [_pod_metric(chance, f"gone-{number}") for number in range(chance.choice([0, 0, 0, 1, 2]))]
    if found and chance.random() < 0.05:
        found.append(_pod_metric(chance, chance.choice(found)["name"]))
    chance.shuffle(found)
    return found


def _pod_metric(chance: Random, name: str) -> Document:
    metric: Document = {
        "name": name,
        "namespace": POD_NAMESPACE if chance.random() < 0.97 else "elsewhere",
        "podUsage": {"resources": quantities.pair(chance, *_LARGEST)},
    }
    if chance.random() < 0.6:
        metric["priority"] = chance.choice(_CLASSES)
    if chance.random() < 0.6:
        metric["qos"] = chance.choice(_QUALITIES)
    if chance.random() < 0.03:
        del metric["podUsage"]
    return metric


def _pod(chance: Random, name: str, zones: int) -> PodOnNode:
    metadata: Document = {"name": name, "namespace": POD_NAMESPACE, "labels": {}, "annotations": {}}
    quality = chance.choice(_QUALITIES)
    if quality:
        metadata["labels"][label_keys.QOS_CLASS] = quality
    if chance.random() < 0.15:
        metadata["labels"][label_keys.PRIORITY_CLASS] = chance.choice([*_CLASSES, "bogus"])
    if chance.random() < 0.3:
        metadata["annotations"][annotation_keys.RESOURCE_STATUS] = _bound_to(chance, zones)
    spec = _spec(chance)
    phase = chance.choice(_PHASES)
    document = {"metadata": metadata, "spec": spec}
    is_ending = phase in ("Running", "Pending") and chance.random() < 0.1
    return PodOnNode(document, phase, None, is_ending, _status(chance, spec) if chance.random() < 0.1 else {})


def _status(chance: Random, spec: Document) -> Document:
    """Of containers that are being resized."""
    return {
        "containerStatuses": [
            {
                "name": container["name"],
                "image": "image",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "allocatedResources": quantities.pair(chance, *_LARGEST),
                "resources": {"requests": quantities.pair(chance, *_LARGEST)},
            }
            for container in spec["containers"]
        ]
    }


def _spec(chance: Random) -> Document:
    count = chance.choice([1, 1, 1, 2, 3])
    spec: Document = {"containers": [_container(chance, f"main-{number}") for number in range(count)]}
    if chance.random() < 0.3:
        count = chance.choice([1, 2, 3])
        spec["initContainers"] = [_init_container(chance, number) for number in range(count)]
    if chance.random() < 0.1:
        spec["runtimeClassName"] = chance.choice(list(RUNTIME_CLASSES))
    if chance.random() < 0.05:
        spec["resources"] = {"requests": {"cpu": "10", "memory": "12Gi"}}
    priority = chance.choice(_PRIORITIES)
    if priority:
        spec["priorityClassName"] = priority
    return spec


def _init_container(chance: Random, number: int) -> Document:
    container = _container(chance, f"initial-{number}")
    if chance.random() < 0.5:
        container["restartPolicy"] = "Always"
    return container


def _container(chance: Random, name: str) -> Document:
    container: Document = {"name": name, "image": "image"}
    if chance.random() < 0.1:
        return container
    amounts: dict[str, Any] = quantities.pair(chance, *_LARGEST)
    match chance.randrange(6):
        case 0:
            container["resources"] = {"requests": amounts, "limits": amounts}
        case 1:
            container["resources"] = {"limits": amounts}
        case 2:
            batch = {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "2Gi"}
            container["resources"] = {"requests": batch, "limits": batch}
        case _:
            container["resources"] = {"requests": amounts}
    return container


def _bound_to(chance: Random, zones: int) -> str:
    match chance.randrange(10):
        case 0:
            return chance.choice(["{]", "", "{}", '{"numaNodeResources":null}', '{"cpuset":"0-3"}', "[]"])
        case _:
            numbers = [chance.randrange(-1, zones + 2) for _ in range(chance.choice([1, 1, 2, 3]))]
            placed = [{"node": number, "resources": {"cpu": "1"}} for number in dict.fromkeys(numbers)]
            return json.dumps({"numaNodeResources": placed})
