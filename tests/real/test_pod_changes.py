"""What DefaultPreBind sends, on a real API server: it arrives, and only at the pod that it is meant for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from koordinator.api.kinds import PODS
from koordinator.api.pod import Pod
from koordinator.base.clock import SystemClock
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from koordinator.scheduler.binding.binding_cycle import PodBinding
from koordinator.scheduler.binding.cluster_writer import ApiWriter
from koordinator.scheduler.engine.binding_points import PodChanges
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.default_pre_bind import DefaultPreBind

CHANGES = PodChanges(labels={"added": "yes", "removed": None}, annotations={"note": "here"})


def manifest(name: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"removed": "soon", "kept": "yes"}, "finalizers": ["example.com/held"]}
    spec = {"containers": [{"name": "main", "image": "none"}], "schedulerName": "nobody"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def apply(client: KubeClient, pod: Pod) -> None:
    plugin = DefaultPreBind(None, ClusterView(NodeColumns()))
    writer = ApiWriter(client, SystemClock(), Random(1))
    assert await plugin.apply_changes(make_pod_info(pod), CHANGES, writer)


async def play(kubeconfig: Path) -> None:
    client = await connect(ClientOptions(kubeconfig=str(kubeconfig), qps=0))
    try:
        await client.create(PODS, manifest("changed"), "default")
        pod = await client.get(PODS, "changed", "default")
        await apply(client, pod)
        metadata = (await client.get(PODS, "changed", "default")).metadata
        assert (metadata.labels, metadata.annotations) == ({"added": "yes", "kept": "yes"}, {"note": "here"})

        namesake = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid="another-one"))
        with pytest.raises(ApiStatusError, match="another-one"):
            await apply(client, namesake)

        await client.delete(PODS, "changed", "default", grace_period_seconds=0)
        await apply(client, pod)
        body = PodBinding("default", "changed", pod.metadata.uid, "node").body()
        with pytest.raises(ApiStatusError, match="is being deleted"):
            await client.create(PODS, body, "default", name="changed", subresource="binding")
        await client.patch(PODS, "changed", {"metadata": {"finalizers": None}}, PatchType.MERGE, "default")
    finally:
        await client.close()


async def bind_with_annotations(kubeconfig: Path) -> None:
    client = await connect(ClientOptions(kubeconfig=str(kubeconfig), qps=0))
    try:
        await client.create(PODS, {**manifest("carried"), "metadata": {"name": "carried"}}, "default")
        pod = await client.get(PODS, "carried", "default")
        body = PodBinding("default", "carried", pod.metadata.uid, "node", {"note": 'said "so"'}).body()
        await client.create(PODS, body, "default", name="carried", subresource="binding")
        pod = await client.get(PODS, "carried", "default")
        assert (pod.spec.node_name, pod.metadata.annotations) == ("node", {"note": 'said "so"'})
        await client.delete(PODS, "carried", "default", grace_period_seconds=0)
    finally:
        await client.close()


def test_annotations_of_the_binding_reach_the_pod(real_cluster: Path) -> None:
    asyncio.run(bind_with_annotations(real_cluster))


def test_changes_reach_their_pod_alone_and_a_pod_that_is_going_is_not_bound(real_cluster: Path) -> None:
    asyncio.run(play(real_cluster))
