"""An instance that waits to lead watches everything and writes nothing: it holds no more than what is there, however
much has come and gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from koordinator.api import annotations as keys
from koordinator.api import labels
from koordinator.api.kinds import (
    DEVICES,
    ELASTIC_QUOTAS,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    POD_GROUPS,
    PODS,
    RESERVATIONS,
    Kind,
)
from koordinator.scheduler.features import IGNORE_OVERDUE
from tests.scheduler.broken_input.test_broken_objects import healthy, healthy_pod, running_beside, two_nodes
from tests.scheduler.held_objects import held_sizes
from tests.scheduler.running_scheduler import RunningScheduler

_BOUNDED: Final = {
    "ActivePods._heaps",
    "Expirations._heap",
    "NodeColumns._changed_at",
    "NodeColumns._changes",
    "PodFacts._by_identical_spec",
    "Tombstones._versions",
}
"""Caches, logs, and heaps with void entries: a constant bounds each of them."""
_TIME: Final = "2026-01-01T00:00:00Z"

Document = dict[str, Any]


def objects(number: int) -> list[tuple[Kind[Any], Document]]:
    """What one round's pods need: a node of their own with its reports, a gang, a quota, a Reservation."""
    name = f"n{number}"
    size = {"cpu": "1", "memory": "1Gi"}
    template = healthy_pod("template")["spec"]
    return [
        *((kind, healthy(kind, name)) for kind in (NODES, NODE_RESOURCE_TOPOLOGIES, DEVICES, NODE_METRICS)),
        (POD_GROUPS, {"metadata": {"name": f"gang{number}", "namespace": "default"}, "spec": {"minMember": 2}}),
        (
            ELASTIC_QUOTAS,
            {
                "metadata": {"name": f"quota{number}", "namespace": "default"},
                "spec": {"min": size, "max": {"cpu": "8", "memory": "8Gi"}},
            },
        ),
        (
            RESERVATIONS,
            {
                "metadata": {"name": f"reservation{number}", "creationTimestamp": _TIME},
                "spec": {
                    "template": {"spec": template},
                    "owners": [{"labelSelector": {"matchLabels": {"own": str(number)}}}],
                    "allocateOnce": False,
                    "ttl": "24h",
                },
                "status": {"phase": "Available", "nodeName": name, "allocatable": size},
            },
        ),
    ]


def pods(number: int) -> list[Document]:
    """One of each sort, and one of a gang that its annotations declare."""
    found = {
        "plain": healthy_pod("plain"),
        "gang": healthy_pod("gang", labels={labels.POD_GROUP: f"gang{number}"}),
        "declared": healthy_pod("declared", annotations={keys.GANG_NAME: f"d{number}", keys.GANG_MIN_AVAILABLE: "2"}),
        "quota": healthy_pod("quota", labels={labels.QUOTA_NAME: f"quota{number}"}),
        "owner": healthy_pod("owner", labels={"own": str(number)}),
        "device": healthy_pod("device", gpu=True),
        "cpus": healthy_pod("cpus", labels={labels.QOS_CLASS: "LSR"}),
    }
    for name, document in found.items():
        document["metadata"] |= {"name": f"{name}{number}", "uid": f"uid-{name}{number}"}
    return list(found.values())


def lives(document: Document, number: int, uid: str) -> Iterator[Document]:
    """The pod as the leader, the kubelet and the API server change it, up to its end: some are bound, run, and leave;
    some finish; some are deleted before they have a node."""
    yield document
    if number % 3:
        document = with_metadata(document, annotations=records(document, number, uid))
        document["spec"] = {**document["spec"], "nodeName": f"n{number}"}
        yield document
        yield {**document, "status": {"phase": "Running"}}
    if number % 3 == 2:
        yield {**document, "status": {"phase": "Succeeded"}}
        return
    for change in range(3):
        yield with_metadata(
            document, deletionTimestamp=_TIME, deletionGracePeriodSeconds=10**8, labels={"change": str(change)}
        )


def records(document: Document, number: int, uid: str) -> Mapping[str, str]:
    """What the leader writes on a pod that it binds."""
    name = document["metadata"]["name"].rstrip("0123456789")
    if name == "device":
        amounts = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
        return {keys.DEVICE_ALLOCATED: json.dumps({"gpu": [{"minor": 0, "resources": amounts}]})}
    if name == "cpus":
        return {keys.RESOURCE_STATUS: json.dumps({"cpuset": "0"})}
    if name == "owner":
        return {keys.RESERVATION_ALLOCATED: json.dumps({"name": f"reservation{number}", "uid": uid})}
    return {}


def with_metadata(document: Document, **changes: Any) -> Document:
    metadata = dict(document["metadata"])
    for name, value in changes.items():
        metadata[name] = {**metadata.get(name, {}), **value} if isinstance(value, Mapping) else value
    return {**document, "metadata": metadata}


async def come_and_go(fixture: RunningScheduler, number: int) -> None:
    api = fixture.api
    for kind, document in objects(number):
        api.put(kind, document)
    await fixture.until_idle()
    uid = api.document(RESERVATIONS, f"reservation{number}")["metadata"]["uid"]
    for steps in zip(*(lives(pod, number, uid) for pod in pods(number)), strict=True):
        for document in steps:
            api.put(PODS, document)
        await fixture.until_idle()
    for document in pods(number):
        api.remove(PODS, document["metadata"]["name"], "default")
    for kind, document in reversed(objects(number)):
        api.remove(kind, document["metadata"]["name"], document["metadata"].get("namespace", ""))
    await fixture.until_idle()


@pytest.mark.parametrize("gates", [frozenset(), frozenset({IGNORE_OVERDUE})], ids=["no gates", "overdue pods"])
def test_a_standby_holds_what_is_there_alone(gates: frozenset[str]) -> None:
    async def story() -> tuple[dict[str, int], dict[str, int]]:
        fixture = running_beside(two_nodes())
        fixture.scheduler.state.view.gates = gates
        watch = asyncio.create_task(fixture.scheduler.watch())
        await fixture.until_idle()
        for number in range(6):
            await come_and_go(fixture, number)
        before = held_sizes(fixture.scheduler, _BOUNDED)
        for number in range(6, 18):
            await come_and_go(fixture, number)
        after = held_sizes(fixture.scheduler, _BOUNDED)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        return before, after

    before, after = asyncio.run(story())
    assert before == after
