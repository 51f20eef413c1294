"""Evictions against an API server that heeds disruption budgets, the embedded one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from koordinator.api.kinds import NAMESPACES, POD_DISRUPTION_BUDGETS, PODS
from koordinator.base.clock import ManualClock
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from koordinator.koordlet.enforce.evictions import Evictor
from koordinator.koordlet.enforce.strategies.eviction import EvictionPlan, Feature, Inputs, plan
from koordinator.koordlet.enforce.strategies.snapshot import PodUsage
from koordinator.kube.connect import ClientOptions, connected
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.interface import Client, PatchType
from tests.koordlet.enforce.strategies.qos_fixtures import GIB, pod_usage, snapshot, suppression

NAMESPACE = "shop"
SIZES = {"large": 6, "small": 5}
"""Batch pods by GiB; one of them is enough, and the larger one goes first."""


async def create_pod(client: Client, name: str) -> PodUsage:
    """It as koordlet sees it, with the UID that the server has given it."""
    usage = pod_usage(name, "BE", memory=SIZES[name] * float(GIB), labels={"app": name})
    containers: list[dict[str, Any]] = [{"name": "c", "image": "i"}]
    document = {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 0, "containers": containers},
    }
    made = await client.create(PODS, document, NAMESPACE)
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await client.patch(PODS, name, {"status": ready}, PatchType.MERGE, NAMESPACE, subresource="status")
    metadata = msgspec.structs.replace(usage.pod.pod.metadata, uid=made.metadata.uid)
    seen = replace(usage.pod, pod=msgspec.structs.replace(usage.pod.pod, metadata=metadata), uid=made.metadata.uid)
    return usage._replace(pod=seen)


async def protect(client: Client, name: str) -> None:
    """A budget that lets none of the pod's go."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
    await client.create(POD_DISRUPTION_BUDGETS, {"metadata": {"name": "budget"}, "spec": spec}, NAMESPACE)
    counts = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    await client.patch(
        POD_DISRUPTION_BUDGETS,
        "budget",
        {"status": {**counts, "expectedPods": 1}},
        PatchType.MERGE,
        NAMESPACE,
        subresource="status",
    )


def memory_plan(pods: tuple[PodUsage, ...]) -> EvictionPlan:
    policy = suppression(memoryEvictThresholdPercent=70)
    return plan(Inputs(snapshot(policy=policy, pods=pods, node_memory=48.0 * GIB)), [Feature.BE_MEMORY])


async def evict_beside_a_budget(folder: Path) -> tuple[list[str], list[str]]:
    """The pods that were evicted, and those that are left."""
    async with EmbeddedApi(ServerOptions()) as api:
        api.write_kubeconfig(folder / "kubeconfig")
        async with connected(ClientOptions(kubeconfig=str(folder / "kubeconfig"))) as client:
            await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            pods = tuple([await create_pod(client, name) for name in SIZES])
            await protect(client, "large")
            clock = ManualClock()
            recorder = EventBroadcaster(client, program="koordlet", clock=clock, random=Random(1)).recorder("koordlet")
            evictor = Evictor(client, clock, recorder, None, on_evicted=lambda _: None, observe_only=False)
            gone = await evictor.carry_out(memory_plan(pods), [usage.pod.uid for usage in pods])
            left = (await client.list(PODS, NAMESPACE)).items
            names = [pod.metadata.name for pod in left if pod.metadata.deletion_timestamp is None]
            return [victim.usage.pod.pod.metadata.name for victim in gone], names


def test_a_pod_whose_budget_is_used_up_stays_and_the_next_one_goes(tmp_path: Path) -> None:
    assert asyncio.run(evict_beside_a_budget(tmp_path)) == (["small"], ["large"])
