"""Clusters to take snapshots of: objects in the in-memory API, and what a what-if says about them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from koordinator.api.kinds import NODES, PODS, Kind
from koordinator.scheduler.configuration import SchedulerConfiguration
from koordinator.simulate.change import Change
from koordinator.simulate.simulated_cluster import SimulationOptions
from koordinator.simulate.snapshot import Snapshot
from koordinator.simulate.snapshot_reader import take_snapshot
from koordinator.simulate.what_if import what_if
from tests.in_memory_api import InMemoryApi

Document = dict[str, Any]
WEB_OWNER: Document = {
    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-of-web", "controller": True,
}  # fmt: skip


def node(name: str, cpu: str = "8", **labels: str) -> Document:
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": {},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod(name: str, on: str = "", cpu: str = "1", owner: Document | None = None, **spec: Any) -> Document:
    """A pod that runs ``on`` a node, or waits for one."""
    metadata: Document = {"name": name, "namespace": "default", "labels": {"app": name.partition("-")[0]}}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    container = {"name": "main", "image": "example.com/main:1", "resources": {"requests": {"cpu": cpu}}}
    status: Document = {"phase": "Pending"}
    if on:
        spec["nodeName"] = on
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "default-scheduler", "containers": [container], "priority": 0, **spec},
        "status": status,
    }


def deployment(name: str, replicas: int, cpu: str = "1", **spec: Any) -> Document:
    container = {"name": "main", "image": "example.com/main:1", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}},
        },
    }


def cluster(nodes: Sequence[Document], pods: Sequence[Document] = (), **others: Any) -> InMemoryApi:
    api = InMemoryApi()
    for each in nodes:
        api.put(NODES, each)
    for each in pods:
        api.put(PODS, each)
    return api


def put(api: InMemoryApi, kind: Kind[Any], *documents: Document) -> InMemoryApi:
    for document in documents:
        api.put(kind, document)
    return api


def snapshot_of(api: InMemoryApi) -> Snapshot:
    return asyncio.run(take_snapshot(api.client(), "the test's cluster", api.clock.now))


def outcome_of(
    api: InMemoryApi,
    *changes: Change,
    configuration: SchedulerConfiguration | None = None,
    options: SimulationOptions | None = None,
) -> Document:
    return asyncio.run(what_if(snapshot_of(api), changes, configuration, options))


def places(outcome: Document) -> dict[str, int]:
    """Node -> how many pods are placed there."""
    counts: dict[str, int] = {}
    for each in outcome["placed"]:
        counts[each["node"]] = counts.get(each["node"], 0) + 1
    return counts
