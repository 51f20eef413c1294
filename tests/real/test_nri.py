"""koordlet as a plugin of a real containerd, on a real node: kubelet starts pods, and NRI asks koordlet about them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.cpu_list import parse_cpu_list
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from tests.free_ports import free_ports
from tests.real.container_runtime import CriClient
from tests.real.node_pods import NodePods, offer_batch
from tests.real.nri_containerd import containerd_with_nri, put_before_path
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.real_node import EnforcedNode, real_node

pytestmark = pytest.mark.slow

_NAMESPACE = "nri"
_NODE = "nri-node"
_LAYOUT = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V1, CgroupDriver.CGROUPFS)
_PODS = NodePods(_NODE, _NAMESPACE)
_MEMORY = 64 << 20
_GATES = "--feature-gates=GPUEnvInject=true"
_LIMITS = ("512", "50000", str(_MEMORY))
"""Of a pod or container with these batch resources."""
_OWNED = 1
"""The CPU that pinned pods have."""


@dataclass(frozen=True)
class Koordlet:
    """``log`` is its file, ``port`` where it is queried over HTTP."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int

    def calls(self, stage: str) -> float:
        """How often hooks have been queried at a stage."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        name = "koordlet_runtime_hook_invoked_duration_milliseconds_count"
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name) and f'stage="{stage}"' in line)

    @property
    def connections(self) -> int:
        """How often it has become a plugin."""
        return self.log.read_text().count("is followed by NRI at")

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """It does not respond meanwhile."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@dataclass(frozen=True)
class NRINode:
    """A node whose containerd has NRI, at ``socket``."""

    node: EnforcedNode
    folder: Path
    programs: Path
    crictl: CriClient

    @property
    def socket(self) -> Path:
        return self.folder / "nri.sock"

    @contextmanager
    def original(self, program: Path) -> Iterator[None]:
        """The original's koordlet as the plugin."""
        state = self.folder / "original"
        state.mkdir()
        # It wants a port that is not 0 for each of its two servers.
        address, profiles = (f"127.0.0.1:{port}" for port in free_ports(2))
        # Its socket is below /var/run, wherever that is.
        socket = os.path.relpath(self.socket, "/var/run")
        flags = [
            *(f"--kubeconfig={self.node.kubeconfig}", f"-addr={address}", f"-pprof-addr={profiles}"),
            *("--logtostderr=true", f"--audit-log-dir={state}", "--disable-query-kubelet-config"),
            *(f"--tsdb-path={state}", f"--prediction-checkpoint-filepath={state}"),
            *(f"--runtime-hooks-addr={state}/k.sock", f"--runtime-hooks-config-path={state}"),
            *("--runtime-hooks-reconcile-interval=1h", f"--runtime-hooks-nri-socket-path={socket}", _GATES),
            # So long it waits in any case.
            "--runtime-hooks-nri-connect-timeout=1s",
            "-v=4",
        ]
        environment = {**os.environ, "NODE_NAME": _NODE, "agent_mode": "hostMode"}
        # It empties its own folder.
        log = state.with_suffix(".log")
        with log.open("wb") as output:
            agent = subprocess.Popen([str(program), *flags], env=environment, stdout=output, stderr=output)
        try:
            until(lambda: "connect to nri server successfully" in log.read_text(), 60)
            # It responds before it knows which CPUs pods share.
            until(lambda: "rule CPUSetAllocator is updated" in log.read_text(), 60)
            yield
        except AssertionError as error:
            error.add_note(log.read_text()[-6000:])
            raise
        finally:
            agent.kill()
            agent.wait(20)

    @contextmanager
    def koordlet(self, *arguments: str) -> Iterator[Koordlet]:
        """It is a plugin of the runtime, and goes over pods by itself only when kubelet has told of new ones."""
        (port,) = free_ports(1)
        log = self.folder / "koordlet.log"
        log.unlink(missing_ok=True)
        nri = (f"--runtime-hooks-nri-socket-path={self.socket}", "--runtime-hooks-reconcile-interval=1h")
        arguments = (f"--addr=127.0.0.1:{port}", *nri, "--kubelet-sync-interval=1s", *arguments)
        agent = self.node.start_koordlet(log, *arguments)
        ours = Koordlet(agent, log, port)
        try:
            # By then it knows which CPUs pods share.
            until(lambda: log.exists() and "runtime proxies are served" in log.read_text() and ours.connections > 0, 60)
            yield ours
        except AssertionError as error:
            error.add_note(log.read_text()[-4000:])
            error.add_note((self.folder / "node/containerd.log").read_text()[-4000:])
            raise
        finally:
            agent.send_signal(signal.SIGTERM)
            assert agent.wait(20) == 0, log.read_text()

    def restart_containerd(self) -> None:
        """End it as a crash does, and start it again; containers live on."""
        node = self.folder / "node"
        process = int((node / "containerd.pid").read_text())
        os.kill(process, signal.SIGKILL)
        until(lambda: not _lives(process), 10)
        # Whoever stops the node ends it, as with the one before.
        command = f"PATH={self.folder}/bin:$PATH {self.programs}/containerd -c containerd.toml >> containerd.log 2>&1 &"
        subprocess.run(["sh", "-c", f"{command} echo $! > containerd.pid"], cwd=node, check=True, timeout=10)

    def specification(self, pod: dict[str, Any]) -> dict[str, Any]:
        """That by which containerd had the pod's container made."""
        socket = str(self.folder / "node/containerd.sock")
        command = ["ctr", "-a", socket, "-n", "k8s.io", "containers", "info", _container(pod)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
        specification: dict[str, Any] = json.loads(done.stdout)["Spec"]
        return specification

    def synchronized(self) -> int:
        """How often containerd has told a plugin of everything."""
        return (self.folder / "node/containerd.log").read_text().count("synchronizing plugin 00-koordlet_nri")


def _lives(process: int) -> bool:
    """The script that started it is gone, so that whoever adopts it may leave it as a zombie."""
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture(scope="module")
def nri(real_cluster: Path, real_programs: RealPrograms) -> Iterator[NRINode]:
    programs = containerd_with_nri()
    with tempfile.TemporaryDirectory(prefix="knri", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        path = put_before_path(programs, folder / "bin", folder / "nri.sock")
        with real_node(real_cluster, folder / "node", _NODE, _NAMESPACE, PATH=path) as node:
            offer_batch(node, "4000")
            crictl = CriClient(real_programs.kubernetes / "crictl", folder / "node/containerd.sock")
            # A kubelet without any pod is taken for one that does not know of its pods yet.
            node.run_pod(_PODS.pod("first", "LS", {}))
            yield NRINode(node, folder, programs, crictl)


@pytest.fixture(autouse=True)
def capacity_for_the_next_test(nri: NRINode) -> Iterator[None]:
    """kubelet rejects pods that request more CPUs than a small machine has left."""
    yield
    nri.node.kubectl("delete", "pods", "-n", _NAMESPACE, "--field-selector=metadata.name!=first")


def _container(pod: dict[str, Any]) -> str:
    return str(pod["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2])


def _shown(pod: dict[str, Any], level: str = "container") -> tuple[str, str, str]:
    """CPU shares, quota and memory limit, as the kernel has them."""
    folder = _LAYOUT.pod(pod["metadata"]["uid"], pod["status"]["qosClass"])
    if level == "container":
        folder = f"{folder}/{_container(pod)}"
    files = (("cpu", "cpu.shares"), ("cpu", "cpu.cfs_quota_us"), ("memory", "memory.limit_in_bytes"))
    shares, quota, memory = (Path(_LAYOUT.folder(kind, folder), file).read_text().strip() for kind, file in files)
    return shares, quota, memory


def test_a_container_is_made_with_what_the_hooks_want(nri: NRINode) -> None:
    gpus = {"gpu": [{"minor": 1}, {"minor": 3}]}
    with nri.koordlet(_GATES) as koordlet:
        sort, db = nri.node.run_pod(_PODS.batch("sort")), nri.node.run_pod(_PODS.pinned("db"))
        train = nri.node.run_pod(_PODS.pod("train", "LS", {}, **{"scheduling.koordinator.sh__device-allocated": gpus}))
        until(lambda: _shown(sort, "pod") == _LIMITS, 10)
        assert koordlet.calls("PreRunPodSandbox") >= 3
    # They were in the request to create the container, not written afterwards.
    resources = nri.specification(sort)["linux"]["resources"]
    assert (resources["cpu"]["shares"], resources["cpu"]["quota"]) == (512, 50_000)
    assert resources["memory"]["limit"] == _MEMORY
    assert _shown(sort) == _LIMITS
    cpu = nri.specification(db)["linux"]["resources"]["cpu"]
    assert (cpu["cpus"], cpu["quota"]) == ("1", -1)
    assert "NVIDIA_VISIBLE_DEVICES=1,3" in nri.specification(train)["process"]["env"]


def test_an_update_of_the_runtime_gets_what_the_hooks_want(nri: NRINode) -> None:
    with nri.koordlet():
        pod = nri.node.run_pod(_PODS.batch("updated"))
        nri.crictl("update", "--cpu-quota", "20000", "--cpu-share", "100", _container(pod))
        assert _shown(pod) == _LIMITS
        # What the hooks do not care for is as it was requested.
        nri.crictl("update", "--cpuset-cpus", "0", _container(pod))
    assert nri.specification(pod)["linux"]["resources"]["cpu"]["cpus"] == "0"
    assert _shown(pod) == _LIMITS


def test_a_container_that_kubelet_resizes_keeps_its_cpus_and_gets_no_quota(nri: NRINode) -> None:
    amounts = {"cpu": "700m", "memory": "64Mi"}
    patch = {"spec": {"containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]}}
    with nri.koordlet():
        pod = nri.node.run_pod(_PODS.pinned("resized"))
        nri.node.kubectl("patch", "pod", "resized", "-n", _NAMESPACE, "--subresource=resize", "-p", json.dumps(patch))
        until(lambda: _shown(pod)[0] == "716", 30)
        assert _shown(pod)[1] == "-1"
        # kubelet writes the pod's own cgroup itself, and gives it a quota.
        until(lambda: _shown(pod, "pod")[:2] == ("716", "-1"), 5)
    cpu = nri.specification(pod)["linux"]["resources"]["cpu"]
    assert (cpu["cpus"], cpu["shares"], cpu["quota"]) == ("1", 716, -1)


def test_a_runtime_that_crashed_asks_again(nri: NRINode) -> None:
    with nri.koordlet() as koordlet:
        before, known = nri.node.run_pod(_PODS.batch("before")), nri.synchronized()
        nri.restart_containerd()
        until(lambda: koordlet.connections == 2 and nri.synchronized() == known + 1, 60)
        after = nri.node.run_pod(_PODS.batch("after"))
        assert nri.specification(after)["linux"]["resources"]["cpu"]["quota"] == 50_000
        assert _shown(before) == _LIMITS


def test_a_koordlet_that_was_away_catches_up(nri: NRINode) -> None:
    pod = nri.node.run_pod(_PODS.batch("missed"))
    assert _shown(pod)[:2] == ("2", "-1")
    with nri.koordlet():
        until(lambda: _shown(pod) == _shown(pod, "pod") == _LIMITS, 30)


def test_a_pod_that_a_hook_cannot_read_starts_only_where_that_is_wanted(nri: NRINode) -> None:
    broken, error = {"scheduling.koordinator.sh__resource-status": ["no object"]}, "sh/resource-status]: Expected"
    with nri.koordlet("--runtime-hooks-plugin-failure-policy=Fail"):
        nri.node.apply(_PODS.pod("refused", "LSR", {"cpu": "100m"}, **broken))
        until(lambda: error in _events(nri.node, "refused"), 30)
        nri.node.kubectl("delete", "pod", "refused", "-n", _NAMESPACE, "--wait=false")
    with nri.koordlet():
        nri.node.run_pod(_PODS.pod("ignored", "LSR", {"cpu": "100m"}, **broken))


def _events(node: EnforcedNode, pod: str) -> str:
    """Those of kubelet: why it cannot start the pod."""
    events = node.get("events", namespace=_NAMESPACE, query=f"?fieldSelector=involvedObject.name={pod}")["items"]
    return " ".join(event["message"] for event in events if event["reason"] == "FailedCreatePodSandBox")


def test_a_koordlet_that_hangs_holds_up_no_pod(nri: NRINode) -> None:
    with nri.koordlet() as koordlet:
        with koordlet.hanging():
            pod = nri.node.run_pod(_PODS.batch("hurried"))
            assert _shown(pod)[:2] == ("2", "-1")
        # containerd has ended the connection.
        until(lambda: koordlet.connections == 2 and _shown(pod) == _LIMITS, 60)


def test_containers_are_made_as_the_original_has_them_made(nri: NRINode, real_programs: RealPrograms) -> None:
    # Without one, the original does nothing at all.
    nri.node.apply({"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": _NODE}})
    # It is there before either agent is: the CPUs that pods share stay the same while containers are made.
    nri.node.run_pod(_PODS.pinned("owner"))
    shared = _SharedCPUs(nri)
    shared.give_all()
    with nri.original(real_programs.original / "koordlet"):
        shared.wait_until_enforced()
        theirs = _made(nri, _pods("theirs"))
    shared.give_all()
    with nri.koordlet(_GATES):
        shared.wait_until_enforced()
        ours = _made(nri, _pods("ours"))
    assert ours == theirs


class _SharedCPUs:
    """The CPUs of a pod that shares them, as the kernel has them: by these it is seen what an agent knows.

    Its log says that it knows the topology, perhaps as it was before the agent reported which CPU has an owner.
    """

    def __init__(self, nri: NRINode) -> None:
        first = nri.node.run_pod(_PODS.pod("first", "LS", {}))
        pod = _LAYOUT.pod(first["metadata"]["uid"], first["status"]["qosClass"])
        self._file = Path(_LAYOUT.folder("cpuset", f"{pod}/{_container(first)}"), "cpuset.cpus")
        self._all = Path(_LAYOUT.folder("cpuset", pod), "cpuset.cpus").read_text()

    def give_all(self) -> None:
        """Undo what another agent has enforced."""
        self._file.write_text(self._all)

    def wait_until_enforced(self) -> None:
        until(lambda: _OWNED not in parse_cpu_list(self._file.read_text().strip()), 60, "a pod shares what is left")


def _pods(whose: str) -> list[dict[str, Any]]:
    gpus = {"gpu": [{"minor": 1}, {"minor": 3}]}
    return [
        _PODS.batch(f"batch-{whose}"),
        _PODS.pinned(f"pinned-{whose}"),
        _PODS.pod(f"gpus-{whose}", "LS", {}, **{"scheduling.koordinator.sh__device-allocated": gpus}),
        _PODS.pod(f"plain-{whose}", "LS", {"cpu": "200m", "memory": "64Mi"}),
        _PODS.pod(f"best-effort-{whose}", "BE", {}),
    ]


def _made(nri: NRINode, pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What plugins can change of each container, as containerd has it made."""
    for pod in pods:
        nri.node.apply(pod)
    made = []
    for pod in pods:
        specification = nri.specification(nri.node.run_pod(pod))
        resources = specification["linux"]["resources"]
        of_kubelet = ("HOSTNAME=", "KUBERNETES_")
        environment = [each for each in specification["process"]["env"] if not each.startswith(of_kubelet)]
        made.append({"cpu": resources["cpu"], "memory": resources["memory"], "environment": environment})
    return made
