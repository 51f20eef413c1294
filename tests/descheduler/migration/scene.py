"""Objects for tests of migration: a Deployment with pods, and jobs for them; what a scheduler makes of Reservations."""

from __future__ import annotations

from typing import Any

from koordinator.api.document import Document
from koordinator.api.kinds import DEPLOYMENTS, POD_MIGRATION_JOBS, PODS, REPLICA_SETS, RESERVATIONS
from tests.descheduler.migration.simulated_cluster import SimulatedCluster

READY = {"type": "Ready", "status": "True"}
NOT_READY = {"type": "Ready", "status": "False"}
OWNER: Document = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web-1",
    "uid": "uid-web-1",
    "controller": True,
}


def deployment(cluster: SimulatedCluster, replicas: int = 3) -> None:
    """The Deployment web with its ReplicaSet web-1."""
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}}
    cluster.put(DEPLOYMENTS, {"metadata": {"namespace": "default", "name": "web", "uid": "uid-web"}, "spec": spec})
    owner: Document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "web",
        "uid": "uid-web",
        "controller": True,
    }
    metadata: Document = {"namespace": "default", "name": "web-1", "uid": "uid-web-1", "ownerReferences": [owner]}
    cluster.put(REPLICA_SETS, {"metadata": metadata, "spec": spec})


def pod(cluster: SimulatedCluster, name: str, node: str = "node-1", **metadata: Any) -> Document:
    """A pod of web-1 that runs and is ready."""
    return cluster.put(
        PODS,
        {
            "metadata": {
                "namespace": "default",
                "name": name,
                "labels": {"app": "web"},
                "ownerReferences": [OWNER],
                **metadata,
            },
            "spec": {
                "nodeName": node,
                "schedulerName": "koord-scheduler",
                "terminationGracePeriodSeconds": 30,
                "containers": [{"name": "main", "image": "image"}],
            },
            "status": {"phase": "Running", "conditions": [READY]},
        },
    )


def job(cluster: SimulatedCluster, pod_name: str, name: str = "job", *, passed: bool = True, **spec: Any) -> Document:
    """A job for a pod; ``passed`` is one that arbitration has let through."""
    annotations = {"descheduler.koordinator.sh/passed-arbitration": "true"} if passed else {}
    return cluster.put(
        POD_MIGRATION_JOBS,
        {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "podRef": {"namespace": "default", "name": pod_name},
                "mode": "ReservationFirst",
                "ttl": "5m0s",
                **spec,
            },
        },
    )


def schedule(cluster: SimulatedCluster, reservation: str, node: str = "node-2", cpu: str = "1") -> None:
    """The simulated scheduler has found a node for a Reservation, which holds so much there; "" for nothing."""
    conditions = [
        {"type": "Scheduled", "status": "True", "reason": "Scheduled"},
        {"type": "Ready", "status": "True", "reason": "Available"},
    ]
    held = {"cpu": cpu} if cpu else {}
    cluster.change(RESERVATIONS, reservation, phase="Available", nodeName=node, conditions=conditions, allocatable=held)


def find_no_node(cluster: SimulatedCluster, reservation: str, message: str = "0/3 nodes are available") -> None:
    """The simulated scheduler gives a Reservation up."""
    conditions = [{"type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": message}]
    cluster.change(RESERVATIONS, reservation, phase="Failed", conditions=conditions)


def bind(cluster: SimulatedCluster, reservation: str, bound: Document) -> None:
    """The simulated scheduler has put a pod into a Reservation."""
    metadata = bound["metadata"]
    owner = {"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]}
    cluster.change(RESERVATIONS, reservation, phase="Succeeded", currentOwners=[owner])


def member(cluster: SimulatedCluster, name: str, node: str = "node-1", gang: str = "training", **mine: str) -> Document:
    """A pod of web-1 that is in a gang of three, by its annotations; ``mine`` are further ones, such as the mode."""
    declared = {"name": gang, "min-available": "3", **{key.replace("_", "-"): value for key, value in mine.items()}}
    annotations = {f"gang.scheduling.koordinator.sh/{key}": value for key, value in declared.items()}
    return pod(cluster, name, node, annotations=annotations)
