"""The Go original's koord-scheduler works against the embedded API: 1,000 pods on 100 nodes, without special flags."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks import workload
from koordinator.api.kinds import NODE_METRICS, PODS
from koordinator.api.pod import Pod
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.interface import Client
from tests.kube.listing import list_all
from tests.real.programs import RealPrograms
from tests.real.scheduler_configuration import LOAD_AWARE, write_configuration

NODES = 100
POD_COUNT = 1_000
PODS_A_NODE = 256
MILLI_CPU_A_NODE = 32_000


@asynccontextmanager
async def embedded_api(folder: Path) -> AsyncIterator[Path]:
    kubeconfig = folder / "kubeconfig"
    command = ("-m", "koordinator.cluster", f"--data={folder / 'api'}", "--port=0", f"--kubeconfig={kubeconfig}")
    server = await asyncio.create_subprocess_exec(sys.executable, *command)
    try:
        async with asyncio.timeout(30):
            while not kubeconfig.exists():
                assert server.returncode is None, "the embedded API ended early"
                await asyncio.sleep(0.05)
        yield kubeconfig
    finally:
        server.terminate()
        await server.wait()


@asynccontextmanager
async def original_scheduler(programs: RealPrograms, kubeconfig: Path, folder: Path) -> AsyncIterator[None]:
    election = {"leaderElect": True, "resourceName": "koord-scheduler", "resourceNamespace": "koordinator-system"}
    configuration = write_configuration(
        folder / "scheduler.yaml", kubeconfig=kubeconfig, leader_election=election, profile=LOAD_AWARE
    )
    arguments = [
        f"--config={configuration}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--secure-port=0",
        "--port=0",
    ]
    with (folder / "scheduler.log").open("wb") as log:
        scheduler = await asyncio.create_subprocess_exec(
            str(programs.original / "koord-scheduler"), *arguments, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            scheduler.kill()
            await scheduler.wait()


async def all_bound(client: Client) -> list[Pod]:
    deadline = time.monotonic() + 180
    while True:
        pods = (await list_all(client, PODS, "default")).items
        if len(pods) == POD_COUNT and all(pod.spec.node_name for pod in pods):
            return list(pods)
        assert time.monotonic() < deadline, f"{sum(1 for pod in pods if pod.spec.node_name)} of {POD_COUNT} were bound"
        await asyncio.sleep(0.5)


def test_the_original_places_a_thousand_pods(real_programs: RealPrograms, tmp_path: Path) -> None:
    async def scenario() -> list[Pod]:
        async with embedded_api(tmp_path) as kubeconfig:
            client = await connect(ClientOptions(kubeconfig=str(kubeconfig)))
            try:
                await workload.install_definitions(client)
                await workload.create_nodes(client, NODES, NODE_METRICS)
                names = (f"pod-{number:04d}" for number in range(POD_COUNT))
                await workload.create_pods(
                    client, (workload.pod(name, scheduler_name="koord-scheduler") for name in names)
                )
                async with original_scheduler(real_programs, kubeconfig, tmp_path):
                    return await all_bound(client)
            finally:
                await client.close()

    pods = asyncio.run(scenario())
    on_node = Counter(pod.spec.node_name for pod in pods)
    assert max(on_node.values()) <= min(PODS_A_NODE, MILLI_CPU_A_NODE // 500)
    assert all(any(c.type == "PodScheduled" and c.status == "True" for c in pod.status.conditions) for pod in pods)
