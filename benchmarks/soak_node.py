"""The node of a soak on which koordlet runs as a process: the files of its kernel, and its kubelet's port.

Another program runs the pods, as on all simulated nodes; this one lets the simulated kernel count what they use, and
responds to the agent as a kubelet does. ``host.json`` in the folder says where everything is.

usage: python -m benchmarks.soak_node KUBECONFIG NODE FOLDER PORT
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Final

import uvloop
from aiohttp import web

from koordinator.api import codec
from koordinator.api.kinds import NODES, PODS
from koordinator.api.pod import Pod, is_finished
from koordinator.cluster.nodes.hardware import KUBELET_CPU_POLICY
from koordinator.cluster.nodes.scenario_checks import FAULT_ANNOTATION, Fault
from koordinator.cluster.nodes.simulated_kernel import PodDemand, SimulatedKernel
from koordinator.koordlet.pods.node_pod import NodePod, node_pods
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.informer import Informer
from koordinator.kube.interface import Client, PatchType
from koordinator.node.cgroup_layout import CgroupDriver

_CONFIGURATION: Final = codec.encode({"kubeletconfig": {"cgroupDriver": CgroupDriver.SYSTEMD, **KUBELET_CPU_POLICY}})
_TICK: Final = 1.0
_SYSTEM_CPU: Final = 0.2
_SYSTEM_MEMORY: Final = 500 << 20
_FOLDERS: Final = {
    "cgroup-root-dir": "cgroup",
    "sys-root-dir": "sys",
    "sys-fs-root-dir": "sys_fs",
    "proc-root-dir": "proc",
    "var-run-root-dir": "var_run",
    "run-root-dir": "run",
    "var-lib-kubelet-dir": "var_lib_kubelet",
}
"""koordlet's flags, and the fields of ``Host``."""


def main(arguments: Sequence[str] | None = None) -> int:
    kubeconfig, name, folder, port = sys.argv[1:] if arguments is None else arguments
    uvloop.run(_serve(kubeconfig, name, Path(folder), int(port)))
    return 0


async def _serve(kubeconfig: str, name: str, folder: Path, port: int) -> None:
    client = await connect(ClientOptions(kubeconfig=kubeconfig))
    node = await client.get(NODES, name)
    capacity = node.status.capacity
    kernel = SimulatedKernel(folder, capacity["cpu"].milli // 1000, capacity["memory"].value, time.time())
    host = asdict(kernel.host)
    folders = {flag: host[field] for flag, field in _FOLDERS.items()}
    (folder / "host.json").write_text(json.dumps({"folders": folders, "kubelet": port}))
    await _take_over(client, name)
    pods = Informer(client, PODS, field_selector=f"spec.nodeName={name}")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(pods.run(), name="pods")
        await pods.wait_synced()
        await _respond(pods, port)
        tasks.create_task(_live(kernel, pods), name="kernel")


async def _take_over(client: Client, name: str) -> None:
    """The kubelet of the node is here, and its NodeMetric is koordlet's: the model of usage reports none."""
    annotation = {"metadata": {"annotations": {FAULT_ANNOTATION: Fault.AGENT_STOPPED.value}}}
    await client.patch(NODES, name, annotation, PatchType.MERGE)
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}]
    await client.patch(NODES, name, {"status": {"addresses": addresses}}, PatchType.MERGE, subresource="status")


async def _respond(pods: Informer[Pod], port: int) -> None:
    """As a kubelet's read-only port."""

    async def listed(request: web.Request) -> web.Response:
        body = codec.encode({"apiVersion": "v1", "kind": "PodList", "items": list(pods.list())})
        return web.Response(body=body, content_type="application/json")

    async def configuration(request: web.Request) -> web.Response:
        return web.Response(body=_CONFIGURATION, content_type="application/json")

    application = web.Application()
    application.router.add_get("/pods/", listed)
    application.router.add_get("/configz", configuration)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()


async def _live(kernel: SimulatedKernel, pods: Informer[Pod]) -> None:
    """Each pod uses about half of what it requests."""
    random = Random(1)
    while True:
        running = [pod for pod in pods.list() if pod.status.phase == "Running" and not is_finished(pod)]
        demands = [_demand(pod, random) for pod in node_pods(running, kernel.layout)]
        kernel.advance(time.time(), _SYSTEM_CPU, _SYSTEM_MEMORY, demands)
        await asyncio.sleep(_TICK)


def _demand(pod: NodePod, random: Random) -> PodDemand:
    cores = (pod.grant.pod.cpu_request or 100) / 1000
    return PodDemand(pod, cores * random.uniform(0.4, 0.6), (64 << 20) * random.uniform(0.9, 1.1))


if __name__ == "__main__":
    sys.exit(main())
