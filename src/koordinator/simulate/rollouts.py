"""Rolls out a new template of a workload: step by step, as its controller does, while the new pods get nodes.

A rollout that does not fit beside the old pods stops halfway, in a simulation as on a cluster.
"""

from __future__ import annotations

import math
from typing import Final

from koordinator.api.document import Document
from koordinator.api.kinds import PODS
from koordinator.cluster.controllers.workloads import number_of_pods
from koordinator.cluster.verbs.delete import delete
from koordinator.cluster.verbs.options import DeleteOptions
from koordinator.cluster.verbs.target import Target
from koordinator.simulate.pod_documents import owner_of
from koordinator.simulate.simulated_cluster import SimulatedCluster
from koordinator.simulate.workloads import WorkloadName, Workloads

_DEFAULT_SHARE: Final = "25%"


async def roll_out(cluster: SimulatedCluster, workload: WorkloadName, deployment: Document, wanted: int) -> str:
    """Replace the pods of a Deployment; returns why some of them were not replaced, empty if all were."""
    workloads = Workloads(cluster.api)
    strategy = deployment["spec"].get("strategy") or {}
    if strategy.get("type") == "Recreate":
        await delete_pods_of(cluster, deployment)
        return await workloads.make_pods(workload, deployment, wanted)
    limits = strategy.get("rollingUpdate") or {}
    surge = number_of_pods(limits.get("maxSurge", _DEFAULT_SHARE), wanted, math.ceil)
    missing = number_of_pods(limits.get("maxUnavailable", _DEFAULT_SHARE), wanted, math.floor)
    if not surge and not missing:
        missing = 1
    current = (await workloads.replica_set_of(deployment))["metadata"]["uid"]
    while True:
        new, old = _split(workloads.pods(deployment), current)
        created = min(wanted - len(new), wanted + surge - len(new) - len(old))
        refusal = await workloads.make_pods(workload, deployment, max(created, 0))
        await cluster.settle()
        new, old = _split(workloads.pods(deployment), current)
        spare = sum(map(_is_placed, (*new, *old))) - (wanted - missing)
        leaving = [pod for pod in old if not _is_placed(pod)]
        leaving += [pod for pod in old if _is_placed(pod)][: max(spare, 0)]
        for pod in leaving:
            await delete_pod(cluster, pod)
        await cluster.settle()
        if refusal or not (created > 0 or leaving):
            break
    if not old or len(old) == len(leaving):
        return refusal
    placed = sum(map(_is_placed, new))
    return (
        refusal or f"{workload}: the rollout stops, {placed} of {wanted} new pods have a node, {len(old)} old ones stay"
    )


async def roll_out_in_order(
    cluster: SimulatedCluster, workload: WorkloadName, stateful_set: Document, wanted: int
) -> str:
    """Replace the pods of a StatefulSet, the one with the highest number first; each waits for the one before."""
    workloads = Workloads(cluster.api)
    old = sorted(workloads.pods(stateful_set), key=ordinal, reverse=True)
    for index, pod in enumerate(old):
        await delete_pod(cluster, pod)
        await cluster.settle()
        if ordinal(pod) >= wanted:
            continue
        refusal = await workloads.make_pods(workload, stateful_set, 1)
        await cluster.settle()
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        new = cluster.api.document(PODS, name, namespace)
        if refusal or new is None or not _is_placed(new):
            left = sum(ordinal(each) < wanted for each in old[index + 1 :])
            return refusal or f"{workload}: the rollout stops at {name}, which has no node; {left} old pods stay"
    return await workloads.make_pods(workload, stateful_set, max(wanted - len(workloads.pods(stateful_set)), 0))


async def delete_pods_of(cluster: SimulatedCluster, obj: Document) -> None:
    """Delete all pods of a workload at once."""
    for pod in Workloads(cluster.api).pods(obj):
        await delete_pod(cluster, pod)
    await cluster.pods.react()


async def delete_pod(cluster: SimulatedCluster, pod: Document) -> None:
    """Delete the pod as its own controller does, which creates no other in its place."""
    metadata = pod["metadata"]
    cluster.pods.causes[metadata["uid"]] = "scaled down"
    target = Target(cluster.api.resource(PODS), metadata["namespace"], metadata["name"])
    await delete(cluster.api.environment, target, DeleteOptions(grace_period_seconds=0))


def ordinal(pod: Document) -> int:
    """The number of a pod of a StatefulSet."""
    text = str(pod["metadata"]["name"]).rpartition("-")[2]
    return int(text) if text.isdecimal() else 0


def _split(pods: list[Document], current: str) -> tuple[list[Document], list[Document]]:
    """The pods of the present template, and the others."""
    new = [pod for pod in pods if (owner := owner_of(pod)) is not None and owner["uid"] == current]
    return new, [pod for pod in pods if pod not in new]


def _is_placed(pod: Document) -> bool:
    return bool(pod["spec"].get("nodeName"))
