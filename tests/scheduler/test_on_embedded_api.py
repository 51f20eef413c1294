"""The scheduler with its real plugins on the embedded API: a pod is created, bound, and told about in an event."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from koordinator.api.kinds import NODES, PODS
from koordinator.base.clock import SystemClock
from koordinator.base.metrics import Metrics
from koordinator.base.program import Process
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.event_series import EVENTS_V1
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.leadership import Leadership
from koordinator.kube.lease_watchdog import NoWatchdog
from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration import default_configuration
from koordinator.scheduler.cycle.failure_report import PodEvents
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.main import make_lifecycle
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.plugins.table import BUILT_IN
from koordinator.scheduler.program import Scheduler, SchedulerOptions


def make_scheduler(client: KubeClient, events: EventBroadcaster) -> Scheduler:
    view = ClusterView(NodeColumns())
    return Scheduler(
        client,
        PodEvents(events, ["default-scheduler"]),
        lambda view: build_profiles(default_configuration(), BUILT_IN, view),
        make_pod_info,
        view,
        SchedulerMetrics(Metrics()),
        clock=SystemClock(),
        random=Random(1),
        # No CRDs are installed: a kind that the server does not have is waited for, not stumbled over.
        options=SchedulerOptions(),
    )


async def until_bound(client: KubeClient, version: str) -> str:
    async with asyncio.timeout(20):
        async for event in client.watch(PODS, "default", resource_version=version):
            bound = await client.get(PODS, "web", "default")
            if event.type != "BOOKMARK" and bound.spec.node_name:
                return bound.spec.node_name
    raise AssertionError("the watch ended before the pod was bound")


async def scenario(folder: Path) -> None:
    async with EmbeddedApi(ServerOptions()) as api:
        api.write_kubeconfig(folder / "kubeconfig")
        client = await connect(ClientOptions(kubeconfig=str(folder / "kubeconfig")))
        events = EventBroadcaster(
            client, instance="test", program="koord-scheduler", clock=SystemClock(), random=Random(1)
        )
        process = Process()
        leadership = Leadership(
            client, None, clock=process.clock, random=process.random, metrics=process.metrics, watchdog=NoWatchdog()
        )
        lifecycle = make_lifecycle(make_scheduler(client, events), events, leadership, process)
        running = asyncio.create_task(lifecycle.run(process.stop))
        try:
            resources = {"cpu": "4", "memory": "8Gi", "pods": "10"}
            status = {"capacity": resources, "allocatable": resources}
            await client.create(NODES, {"metadata": {"name": "full"}, "status": {"allocatable": {"pods": "0"}}})
            await client.create(NODES, {"metadata": {"name": "free"}, "status": status})
            version = (await client.list(PODS, "default")).resource_version
            container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
            await client.create(PODS, {"metadata": {"name": "web"}, "spec": {"containers": [container]}}, "default")
            assert await until_bound(client, version) == "free"
        finally:
            process.stop.set()
            await running
            found = await client.list(EVENTS_V1, "default")
            await client.close()
        assert len(found.items) == 1


def test_a_pod_is_bound_on_the_embedded_api(tmp_path: Path) -> None:
    asyncio.run(scenario(tmp_path))
