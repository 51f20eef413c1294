"""koord-scheduler as a process on a real API server: everything is bound once, also when it is killed in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.pod import Pod
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.errors import KubeError
from koordinator.kube.event_series import EVENTS_V1
from koordinator.kube.interface import Malformed
from koordinator.scheduler.cycle.failure_report import scheduled_condition
from tests.real.control_plane import ControlPlane
from tests.real.scheduler_configuration import LOAD_AWARE, write_configuration

NODE_COUNT, POD_COUNT, SLOTS = 100, 1000, 11
ELECTION = {
    "leaderElect": True,
    "resourceName": "koord-scheduler",
    "resourceNamespace": "kube-system",
    "leaseDuration": "4s",
    "renewDeadline": "3s",
    "retryPeriod": "1s",
}


@contextmanager
def scheduler(plane: ControlPlane, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    configuration = write_configuration(folder / "scheduler.yaml", leader_election=ELECTION, profile=LOAD_AWARE)
    arguments = [f"--config={configuration}", f"--kubeconfig={plane.kubeconfig}", "--port=0"]
    with (folder / "scheduler.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "koordinator.scheduler", *arguments], stderr=log, stdout=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(30)


@asynccontextmanager
async def connected(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig)))
    try:
        yield client
    finally:
        await client.close()


async def together(work: Callable[[int], Awaitable[Any]], count: int) -> None:
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(32):
            group.create_task(worker())


async def populate(client: KubeClient, nodes: int, pods: int) -> None:
    """Nodes with room for SLOTS pods each, and pods of one slot."""
    for definition in custom_resource_definitions():
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    resources = {"cpu": f"{SLOTS * 100}m", "memory": "64Gi", "pods": "110"}
    status = {"capacity": resources, "allocatable": resources}
    await together(lambda n: client.create(NODES, {"metadata": {"name": f"node-{n:03}"}, "status": status}), nodes)
    await together(lambda n: client.create(PODS, pod(f"pod-{n:04}"), "default"), pods)


def pod(name: str, cpu: str = "100m") -> dict[str, Any]:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    return {"metadata": {"name": name}, "spec": {"schedulerName": "koord-scheduler", "containers": [container]}}


async def event_names(client: KubeClient) -> list[str]:
    return [event.metadata.name for event in (await client.list(EVENTS_V1, "default")).items]


async def pod_events(client: KubeClient) -> int:
    """How many events of this file's pods there are; the API server writes some of its own while it starts."""
    return len([name for name in await event_names(client) if name.startswith("pod-")])


class Bindings:
    """Every node that a pod was ever seen on."""

    def __init__(self) -> None:
        self.nodes: dict[str, set[str]] = {}
        self._changed = asyncio.Event()

    async def watch(self, client: KubeClient) -> None:
        """Outlives API servers, and that they end the watch of a client that is slow to read."""
        while True:
            with contextlib.suppress(KubeError):
                page = await client.list(PODS, "default")
                self._note(page.items)
                async for event in client.watch(PODS, "default", resource_version=page.resource_version):
                    self._note([event.object])
            await asyncio.sleep(0.1)

    def _note(self, pods: Sequence[Pod | Malformed | None]) -> None:
        for each in pods:
            if isinstance(each, Pod) and each.spec.node_name:
                self.nodes.setdefault(each.metadata.name, set()).add(each.spec.node_name)
                self._changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(120):
            while len(self.nodes) < count:
                self._changed.clear()
                await self._changed.wait()


async def check(client: KubeClient, bindings: Bindings, pods: int) -> None:
    """All bound, each to one node only, no node with more pods than it has slots for."""
    assert len(bindings.nodes) == pods
    assert all(len(nodes) == 1 for nodes in bindings.nodes.values())
    page = await client.list(PODS, "default")
    assert {item.metadata.name: {item.spec.node_name} for item in page.items} == bindings.nodes
    assert max(Counter(item.spec.node_name for item in page.items).values()) <= SLOTS


async def play(plane: ControlPlane, story: Callable[[KubeClient, Bindings], Awaitable[None]]) -> None:
    async with connected(plane) as client:
        await populate(client, NODE_COUNT, POD_COUNT)
        bindings = Bindings()
        watching = asyncio.create_task(bindings.watch(client))
        try:
            await story(client, bindings)
            await check(client, bindings, POD_COUNT)
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching


def test_a_thousand_pods_are_bound_once(plane: ControlPlane, tmp_path: Path) -> None:
    async def story(client: KubeClient, bindings: Bindings) -> None:
        with scheduler(plane, tmp_path) as process:
            await bindings.until(POD_COUNT)
            # Events are written after the bindings; a program that ends has three seconds for them, which may be too
            # few for hundreds where other tests keep the cores busy.
            async with asyncio.timeout(120):
                while await pod_events(client) < POD_COUNT - 50:
                    await asyncio.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 30) == 0
        assert await pod_events(client) == POD_COUNT

    asyncio.run(play(plane, story))


def test_killed_in_the_middle_its_successor_finishes(plane: ControlPlane, tmp_path: Path) -> None:
    async def story(client: KubeClient, bindings: Bindings) -> None:
        with scheduler(plane, tmp_path) as process:
            await bindings.until(POD_COUNT // 3)
            process.kill()
        assert len(bindings.nodes) < POD_COUNT, "it was too fast to be killed in the middle"
        with scheduler(plane, tmp_path):
            await bindings.until(POD_COUNT)

    asyncio.run(play(plane, story))


def test_a_pod_that_fits_nowhere_says_why(plane: ControlPlane, tmp_path: Path) -> None:
    async def story() -> None:
        async with connected(plane) as client:
            await populate(client, 2, 0)
            await client.create(PODS, pod("huge", cpu="64"), "default")
            with scheduler(plane, tmp_path):
                async with asyncio.timeout(60):
                    while (condition := scheduled_condition(await client.get(PODS, "huge", "default"))) is None:
                        await asyncio.sleep(0.2)
            assert (condition.status, condition.reason) == ("False", "Unschedulable")
            assert condition.message == (
                "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: "
                "2 Preemption is not helpful for scheduling."
            )
            events = await event_names(client)
            assert len([name for name in events if name.startswith("huge.")]) == 1, events

    asyncio.run(story())
