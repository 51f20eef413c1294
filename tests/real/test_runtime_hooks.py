"""Runtime hooks on a real node: kubelet, koord-runtime-proxy, containerd, and the original's koordlet on its pods."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.protobuf.runtime_hooks_pb2 import ContainerResourceHookRequest, ContainerResourceHookResponse
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.grpc_client import GrpcClient
from tests.free_ports import free_ports
from tests.real.container_runtime import ProxyProcess
from tests.real.node_pods import BATCH, FREE, NodePods, offer_batch
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.real_node import EnforcedNode, real_node
from tests.real.test_runtime_proxy_kubelet import link_programs

_NAMESPACE = "runtime-hooks"
_NODE = "hooks-node"
_LAYOUT = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V1, CgroupDriver.CGROUPFS)
_PODS = NodePods(_NODE, _NAMESPACE)
_MEMORY = 64 << 20
_FILES = ("cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes", "cpuset.cpus")
_CONTROLLERS = {"cpu.shares": "cpu", "cpu.cfs_quota_us": "cpu", "memory.limit_in_bytes": "memory"}


@dataclass(frozen=True)
class HookedNode:
    """A node whose kubelet talks to koord-runtime-proxy."""

    node: EnforcedNode
    proxy: ProxyProcess
    folder: Path

    @contextmanager
    def koordlet(self, *arguments: str) -> Iterator[Path]:
        """Ours, and its log; it serves the proxy."""
        log, socket = self.folder / "koordlet.log", self.folder / "hooks.sock"
        for file in (socket, self.proxy.hooks / "koordlet.json"):
            file.unlink(missing_ok=True)
        hooks = (f"--runtime-hooks-addr={socket}", f"--runtime-hooks-host-endpoint={socket}")
        where = (f"--runtime-hooks-config-path={self.proxy.hooks}", "--runtime-hooks-reconcile-interval=1s")
        agent = self.node.start_koordlet(log, *hooks, *where, "--kubelet-sync-interval=1s", *arguments)
        try:
            yield log
        finally:
            agent.send_signal(signal.SIGTERM)
            assert agent.wait(20) == 0, log.read_text()

    @contextmanager
    def original(self, program: Path) -> Iterator[Path]:
        """The original's, which the proxy is not told of, and the socket that it serves."""
        state = self.folder / "original"
        state.mkdir()
        # It wants a port that is not 0 for each of its two servers.
        address, profiles = (f"127.0.0.1:{port}" for port in free_ports(2))
        flags = [
            *(f"--kubeconfig={self.node.kubeconfig}", f"-addr={address}", f"-pprof-addr={profiles}"),
            *("--logtostderr=true", f"--audit-log-dir={state}", "--disable-query-kubelet-config"),
            *(f"--tsdb-path={state}", f"--prediction-checkpoint-filepath={state}"),
            *(f"--runtime-hooks-addr={state}/k.sock", f"--runtime-hooks-config-path={state}"),
            *("--runtime-hooks-reconcile-interval=1s", "--kubelet-sync-interval=1s", "--enable-nri-runtime-hook=false"),
        ]
        environment = {**os.environ, "NODE_NAME": _NODE, "agent_mode": "hostMode"}
        with (self.folder / "original.log").open("wb") as log:
            agent = subprocess.Popen([str(program), *flags], env=environment, stdout=log, stderr=log)
        try:
            yield state / "k.sock"
        except AssertionError as error:
            error.add_note((self.folder / "original.log").read_text()[-6000:])
            raise
        finally:
            agent.kill()
            agent.wait(20)


@pytest.fixture(scope="module")
def hooked(real_cluster: Path, real_programs: RealPrograms) -> Iterator[HookedNode]:
    with tempfile.TemporaryDirectory(prefix="khn", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        proxy = ProxyProcess(folder, folder / "node/containerd.sock")
        link_programs(real_programs.kubernetes, folder / "bin", proxy.socket)
        settings = {"KBIN": str(folder / "bin"), "CRI_SOCKET": str(proxy.socket)}
        proxy.launch()
        try:
            with real_node(real_cluster, folder / "node", _NODE, _NAMESPACE, **settings) as node:
                offer_batch(node, "2000")
                yield HookedNode(node, proxy, folder)
        finally:
            proxy.stop()


def _folders(pod: dict[str, Any]) -> dict[str, str]:
    """The pod's, and its container's."""
    folder = _LAYOUT.pod(pod["metadata"]["uid"], pod["status"]["qosClass"])
    identifier = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    return {"pod": folder, "container": f"{folder}/{identifier}"}


def _shown(pod: dict[str, Any]) -> dict[str, str]:
    """What the kernel shows of it."""
    return {
        f"{pod['metadata']['name']} {level} {name}": Path(
            _LAYOUT.folder(_CONTROLLERS.get(name, "cpuset"), folder), name
        )
        .read_text()
        .strip()
        for level, folder in _folders(pod).items()
        for name in _FILES
    }


def test_a_batch_pod_starts_with_its_batch_resources(hooked: HookedNode) -> None:
    with hooked.koordlet("--runtime-hooks-reconcile-interval=1h"):
        until((hooked.proxy.hooks / "koordlet.json").exists, 60)
        until(lambda: "hook server koordlet.json" in hooked.proxy.log.read_text(), 10)
        made = _PODS.batch("sort"), _PODS.pinned("db"), _PODS.batch("scan", FREE)
        pods = [hooked.node.run_pod(each) for each in made]
        # koordlet writes the files of the pod itself beside its response, a moment later.
        until(lambda: _shown(pods[-1])["scan pod cpu.cfs_quota_us"] == "50000", 20)
        shown = {key: value for pod in pods for key, value in _shown(pod).items()}
        containers = [json.loads(_inspect(hooked, pod)) for pod in pods]
    limits = ("512", "50000", str(_MEMORY))
    assert tuple(shown[f"sort pod {name}"] for name in _FILES[:3]) == limits
    assert tuple(shown[f"sort container {name}"] for name in _FILES[:3]) == limits
    # A free pod is limited alike, and runs after it.
    for level in ("pod", "container"):
        assert tuple(shown[f"scan {level} {name}"] for name in _FILES[:3]) == ("2", *limits[1:])
    assert (shown["db container cpuset.cpus"], shown["db container cpu.cfs_quota_us"]) == ("1", "-1")
    # They were in the request to create the container, not written afterwards.
    resources = [each["Spec"]["linux"]["resources"] for each in containers]
    assert resources[0]["cpu"]["quota"] == 50_000
    assert resources[1]["cpu"]["cpus"] == "1"


def _inspect(hooked: HookedNode, pod: dict[str, Any]) -> str:
    identifier = pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
    socket = str(hooked.folder / "node/containerd.sock")
    command = ["ctr", "-a", socket, "-n", "k8s.io", "containers", "info", identifier]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def test_the_files_of_running_pods_are_those_that_the_original_writes(
    hooked: HookedNode, real_programs: RealPrograms
) -> None:
    (hooked.proxy.hooks / "koordlet.json").unlink(missing_ok=True)
    # Without one, the original does nothing at all.
    policy = {
        "kind": "NodeSLO",
        "metadata": {"name": _NODE},
        "spec": {"resourceUsedThresholdWithBE": {"enable": False}},
    }
    hooked.node.apply({"apiVersion": "slo.koordinator.sh/v1alpha1", **policy})
    pods = [hooked.node.run_pod(_PODS.batch("sort2")), hooked.node.run_pod(_PODS.pinned("db2"))]

    def shown() -> dict[str, str]:
        return {key: value for pod in pods for key, value in _shown(pod).items()}

    def is_enforced() -> bool:
        now = shown()
        return now["sort2 container cpu.cfs_quota_us"] == "50000" and now["db2 pod cpu.cfs_quota_us"] == "-1"

    of_kubelet = shown()
    assert not is_enforced()
    with hooked.koordlet():
        until(is_enforced, 60)
        until(lambda: (hooked.proxy.hooks / "koordlet.json").exists(), 60)
        ours, responses = shown(), asyncio.run(_responses(hooked.folder / "hooks.sock"))
    with hooked.koordlet("--feature-gates=BatchResource=false,CPUSetAllocator=false"):
        until(lambda: shown() == of_kubelet, 60)
    with hooked.original(real_programs.original / "koordlet") as socket:
        until(is_enforced, 90)
        # Its features write one after the other, and it serves before it knows which CPUs pods share.
        with suppress(AssertionError):
            until(lambda: shown() == ours, 20)
        assert shown() == ours
        with suppress(AssertionError):
            until(lambda: asyncio.run(_responses(socket)) == responses, 40)
        assert responses == asyncio.run(_responses(socket))
    assert ours["db2 container cpuset.cpus"] == "1"


async def _responses(socket: Path) -> list[str]:
    """The responses of a hook server about containers that do not exist, of pods of several kinds."""
    client = GrpcClient(socket)
    found = []
    amounts = {"requests": BATCH, "limits": BATCH}
    batch = json.dumps({"containers": {"main": amounts}})
    cases = [
        ("BE", {"node.koordinator.sh/extended-resource-spec": batch}, "/kubepods/besteffort/podx"),
        ("BE", {"node.koordinator.sh/extended-resource-spec": "{"}, "/kubepods/besteffort/podx"),
        ("BE", {}, "/kubepods/besteffort/podx"),
        ("LSR", {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-1"}'}, "/kubepods/podx"),
        ("LSE", {"scheduling.koordinator.sh/resource-status": "["}, "/kubepods/podx"),
        ("LSR", {"node.koordinator.sh/extended-resource-spec": batch}, "/kubepods/podx"),
    ]
    for stage in ("PreCreateContainer", "PreUpdateContainerResources"):
        for qos, given, parent in cases:
            request = ContainerResourceHookRequest(pod_annotations=given, pod_cgroup_parent=parent)
            request.pod_meta.name, request.pod_meta.uid, request.container_meta.name = "x", "x", "main"
            request.pod_labels["koordinator.sh/qosClass"] = qos
            request.container_resources.cpu_quota, request.container_resources.cpu_shares = 20_000, 102
            request.container_envs["A"] = "1"
            method = f"/runtime.v1alpha1.RuntimeHookService/{stage}Hook"
            response = await client.unary(method, request.SerializeToString(), 10)
            found.append(f"{stage} {qos} {ContainerResourceHookResponse.FromString(response)}")
    client.close()
    return found
