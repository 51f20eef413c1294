"""A pod that requests half of a real GPU, from the Device to its usage: koordlet, koord-manager, koord-scheduler run.

The API server is the embedded one. The kubelet is simulated: it lists the pod, whose only process computes on the GPU
in a cgroup that the test creates, as a container runtime would. It needs root and cgroup version 2.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from koordinator.api.codec import to_document
from koordinator.api.kinds import CONFIG_MAPS, DEVICES, NODE_METRICS, NODES, PODS
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connected
from koordinator.kube.interface import PatchType
from tests.gpu.cuda_process import CudaProcess, cuda_process
from tests.gpu.nvidia_smi import list_gpus
from tests.real.polling import until
from tests.waiting import once

pytestmark = pytest.mark.gpu

NODE: Final = "gpu-node"
CGROUPS: Final = Path("/sys/fs/cgroup")
CONTAINER: Final = "a" * 64
READ_ONLY_PORT: Final = 10255
HELD: Final = 2048
"""MiB that the process holds."""
CORE, RATIO = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"


@pytest.fixture(autouse=True)
def machine() -> None:
    """Skips, or fails where a GPU is required, on a machine that lacks something."""
    missing = (
        "an NVIDIA GPU" if not Path("/proc/driver/nvidia/version").exists() else
        "root" if os.geteuid() else
        "cgroup version 2" if not (CGROUPS / "cgroup.controllers").exists() else ""
    )  # fmt: skip
    if missing and "KOORDINATOR_GPU_REQUIRED" in os.environ:
        pytest.fail(f"it needs {missing}")
    if missing:
        pytest.skip(f"it needs {missing}")


@contextmanager
def running(log: Path, *command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    variables = {**os.environ, **environment}
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, env=variables) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextmanager
def local_cluster(folder: Path) -> Iterator[Path]:
    """The API server, the manager and the scheduler of ``koord up``; its kubeconfig."""
    start = "import sys; from koordinator.cli.main import main; sys.exit(main())"
    arguments = ("up", "--only", "apiserver,manager,scheduler", "--data", str(folder / "data"), "--free-ports")
    log = folder / "up.log"
    with running(log, sys.executable, "-c", start, *arguments):
        until(lambda: b"The cluster is up" in log.read_bytes(), 60, "the cluster")
        yield folder / "data/kubeconfig"


@asynccontextmanager
async def kubelet(pods: list[dict[str, Any]]) -> AsyncIterator[None]:
    """Lists ``pods``."""

    async def listed(_: web.Request) -> web.Response:
        return web.json_response({"apiVersion": "v1", "kind": "PodList", "items": pods})

    async def configuration(_: web.Request) -> web.Response:
        return web.json_response({"kubeletconfig": {"cgroupDriver": "cgroupfs"}})

    application = web.Application()
    application.router.add_get("/pods", listed)
    application.router.add_get("/pods/", listed)
    application.router.add_get("/configz", configuration)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", READ_ONLY_PORT).start()
    try:
        yield
    finally:
        await runner.cleanup()


@contextmanager
def cgroup_of(uid: str, process: CudaProcess) -> Iterator[None]:
    """The process in the cgroup of the pod's container."""
    folders = [CGROUPS, CGROUPS / "kubepods", CGROUPS / "kubepods/burstable", CGROUPS / f"kubepods/burstable/pod{uid}"]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.subtree_control").write_text("+cpu +memory +cpuset")
    container = folders[-1] / CONTAINER
    container.mkdir()
    before = Path(f"/proc/{process.pid}/cgroup").read_text().strip().removeprefix("0::/")
    (container / "cgroup.procs").write_text(str(process.pid))
    try:
        yield
    finally:
        (CGROUPS / before / "cgroup.procs").write_text(str(process.pid))
        for folder in (container, *reversed(folders[1:])):
            folder.rmdir()


def test_half_a_gpu_is_allocated_and_its_usage_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        pods: list[dict[str, Any]] = []
        with local_cluster(tmp_path) as kubeconfig:
            options = ClientOptions(kubeconfig=str(kubeconfig), qps=100, burst=100, user_agent="test")
            async with kubelet(pods), connected(options) as client:
                await prepare(client)
                arguments = (
                    f"--kubeconfig={kubeconfig}",
                    "--feature-gates=Accelerators=true",
                    "--kubelet-insecure-tls",
                    f"--prediction-checkpoint-filepath={tmp_path}/forecasts",
                )
                agent = (sys.executable, "-m", "koordinator.koordlet", *arguments, "--addr=0")
                with running(tmp_path / "koordlet.log", *agent, NODE_NAME=NODE, agent_mode="hostMode"):
                    pod = await scheduled(client)
                    allocated = json.loads(pod.metadata.annotations["scheduling.koordinator.sh/device-allocated"])
                    assert [each["id"] for each in allocated["gpu"]] == [list_gpus().gpus[0].uuid]
                    assert allocated["gpu"][0]["resources"][CORE] == "50"
                    with cuda_process(HELD) as process, cgroup_of(pod.metadata.uid, process):
                        process.work()
                        pods.append(as_listed(pod))
                        await once(client, NODE_METRICS, reports_usage)

    asyncio.run(scenario())


async def prepare(client: KubeClient) -> None:
    """A node that koordlet can run for, and frequent reports."""
    frequent = '{"enable": true, "metricReportIntervalSeconds": 5, "metricAggregateDurationSeconds": 10}'
    patch = {"data": {"colocation-config": frequent}}
    await client.patch(CONFIG_MAPS, "slo-controller-config", patch, PatchType.MERGE, "koordinator-system")
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    status = {
        "allocatable": amounts,
        "capacity": amounts,
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await client.create(NODES, {"metadata": {"name": NODE}, "status": status})


async def scheduled(client: KubeClient) -> Pod:
    """A pod with half a GPU, once it is on the node."""
    await once(client, DEVICES, lambda device: bool(device.spec.devices))
    await once(client, NODES, lambda node: CORE in node.status.allocatable)
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {CORE: "50", RATIO: "50"}}
    spec = {"schedulerName": "koord-scheduler", "containers": [{"name": "main", "image": "x", "resources": resources}]}
    await client.create(PODS, {"metadata": {"name": "half-a-gpu"}, "spec": spec}, "default")
    return await once(client, PODS, lambda pod: bool(pod.spec.node_name), "default")


def as_listed(pod: Pod) -> dict[str, Any]:
    container = {"name": "main", "ready": True, "containerID": f"containerd://{CONTAINER}", "state": {"running": {}}}
    status = {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [container]}
    document: dict[str, Any] = to_document(pod)
    return {**document, "status": status}


def reports_usage(metric: NodeMetric) -> bool:
    """Whether the pod uses most of the GPU, and the memory that it holds."""
    used = [device.resources for each in metric.status.pods_metric for device in each.pod_usage.devices]
    return any(each[CORE].value >= 50 and each["koordinator.sh/gpu-memory"].value >= HELD << 20 for each in used)
