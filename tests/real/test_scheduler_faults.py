"""koord-scheduler where things break in the middle of binding: the API server is killed, the leader dies or stops.

However it goes, no pod is bound twice, no node gets more than it can hold, and nothing is left waiting that fits.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from koordinator.api.kinds import PODS
from koordinator.kube.client import KubeClient
from tests.real.control_plane import ControlPlane
from tests.real.scheduler_configuration import write_configuration
from tests.real.test_scheduler import SLOTS, Bindings, connected, pod, populate, together

NODE_COUNT, POD_COUNT = 50, 550
ENOUGH = POD_COUNT // 4
"""So many pods are bound when something breaks."""
SHORT_TERM, LONG_TERM = (12, 10), (60, 50)
IMPORTANT = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "important"},
    "value": 1000,
    "preemptionPolicy": "Never",
}


@dataclass(frozen=True, slots=True)
class Instance:
    """One scheduler process."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def has_led(self) -> bool:
        return b"acquired lease" in self.log.read_bytes()


@contextmanager
def instance(plane: ControlPlane, folder: Path, name: str, term: tuple[int, int]) -> Iterator[Instance]:
    log = folder / f"{name}.log"
    lease, renewal = term
    election = {"leaderElect": True, "leaseDuration": f"{lease}s", "renewDeadline": f"{renewal}s", "retryPeriod": "1s"}
    configuration = write_configuration(folder / f"{name}.yaml", leader_election=election)
    arguments = [f"--config={configuration}", f"--kubeconfig={plane.kubeconfig}", "--port=0"]
    with log.open("wb") as output:
        command = [sys.executable, "-m", "koordinator.scheduler", *arguments]
        process = subprocess.Popen(command, stderr=output, stdout=output)
    try:
        yield Instance(process, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
        process.wait(30)


@asynccontextmanager
async def crowded(plane: ControlPlane) -> AsyncIterator[tuple[KubeClient, Bindings]]:
    """As many pods as there is free capacity for, and what must be true of them in the end."""
    async with connected(plane) as client:
        await populate(client, NODE_COUNT, POD_COUNT)
        seen = Bindings()
        watching = asyncio.create_task(seen.watch(client))
        try:
            yield client, seen
            await check(client, seen)
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching


async def check(client: KubeClient, seen: Bindings) -> None:
    """No pod on two nodes ever, no node over, and, since there are as many pods as slots or more, none with room."""
    placed = {item.metadata.name: item.spec.node_name for item in (await client.list(PODS, "default")).items}
    assert all(len(nodes) == 1 for nodes in seen.nodes.values())
    assert {name: {node} for name, node in placed.items() if node} == seen.nodes
    assert set(Counter(node for node in placed.values() if node).values()) == {SLOTS}
    assert len(seen.nodes) == NODE_COUNT * SLOTS


def leader_of(*instances: Instance) -> tuple[Instance, Instance]:
    """The one that leads, and the other."""
    (leader,) = (each for each in instances if each.has_led)
    (other,) = (each for each in instances if each is not leader)
    return leader, other


def test_the_api_server_is_killed_in_the_middle_and_comes_back(plane: ControlPlane, tmp_path: Path) -> None:
    async def story() -> None:
        async with crowded(plane) as (_, seen):
            with instance(plane, tmp_path, "only", LONG_TERM) as only:
                await seen.until(ENOUGH)
                await asyncio.to_thread(plane.kill_api_server)
                assert len(seen.nodes) < POD_COUNT, "it was too fast to be interrupted"
                await asyncio.to_thread(plane.start_api_server)
                await seen.until(POD_COUNT)
                assert only.process.poll() is None, "it is the same process that goes on"

    asyncio.run(story())


def test_the_leader_is_killed_in_the_middle_and_another_goes_on(plane: ControlPlane, tmp_path: Path) -> None:
    async def story() -> None:
        async with crowded(plane) as (_, seen):
            with instance(plane, tmp_path, "a", SHORT_TERM) as a, instance(plane, tmp_path, "b", SHORT_TERM) as b:
                await seen.until(ENOUGH)
                leader, other = leader_of(a, b)
                leader.process.kill()
                assert len(seen.nodes) < POD_COUNT, "it was too fast to be interrupted"
                await seen.until(POD_COUNT)
                assert other.has_led

    asyncio.run(story())


def test_a_leader_that_stood_still_binds_nothing_when_it_goes_on(plane: ControlPlane, tmp_path: Path) -> None:
    """Meanwhile another one leads and gives all the free capacity to more important pods."""

    async def story() -> None:
        plane.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", IMPORTANT)
        async with crowded(plane) as (client, seen):
            with instance(plane, tmp_path, "a", SHORT_TERM) as a, instance(plane, tmp_path, "b", SHORT_TERM) as b:
                await seen.until(ENOUGH)
                leader, other = leader_of(a, b)
                leader.process.send_signal(signal.SIGSTOP)
                assert len(seen.nodes) < POD_COUNT, "it was too fast to be interrupted"
                await together(lambda n: client.create(PODS, important(n), "default"), POD_COUNT)
                await seen.until(NODE_COUNT * SLOTS)
                assert other.has_led
                leader.process.send_signal(signal.SIGCONT)
                assert await asyncio.to_thread(leader.process.wait, 30) != 0, "it has lost the lease"

    asyncio.run(story())


def important(number: int) -> dict[str, Any]:
    document = pod(f"important-{number:04}")
    document["spec"]["priorityClassName"] = "important"
    return document
