"""koordlet with the rights of config/rbac and no others: nothing is forbidden, and no right is idle.

The machine is a folder and kubelet a small server on its read-only port, so that what is measured is under control.
What kubelet itself asks the API server about a caller (nodes/pods, nodes/configz) is seen on a real one.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.koordlet.node_under_test import GIB, MEMORY_STAT
from tests.koordlet.report.devices.reported import xpu
from tests.node.machine import FakeMachine
from tests.real.audited import TOKEN, Audited, Right, audited
from tests.real.manager_cluster import prepare
from tests.real.programs import RealPrograms
from tests.real.real_node import real_node
from tests.real.sandbox_node import OURS, koordlet, kubelet, log_of

CORE = "/api/v1"
SLO = "/apis/slo.koordinator.sh/v1alpha1"
NODE = "n1"
NODE_SLO = f"{SLO}/nodeslos/{NODE}"
TOPOLOGY = f"/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/{NODE}"
DEVICE = f"/apis/scheduling.koordinator.sh/v1alpha1/devices/{NODE}"
GATES = "Accelerators=true,BEMemoryEvict=true,BlkIOReconcile=true"
OF_KUBELET = {("get", "", "nodes/pods"), ("get", "", "nodes/configz")}
SECONDS = 60.0


@pytest.fixture
def books(real_programs: RealPrograms, tmp_path: Path) -> Iterator[Audited]:
    with audited(real_programs.kubernetes, tmp_path, "koordlet") as made:
        prepare(made.plane)
        made.install()
        yield made


def give_it_work(books: Audited, machine: FakeMachine) -> dict[str, Any]:
    """A node whose memory is half used, which is too much, by one batch pod; the pod as kubelet tells of it."""
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "10"}
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    status = {"capacity": amounts, "allocatable": amounts, "addresses": addresses}
    books.create(f"{CORE}/nodes", {"metadata": {"name": NODE}, "status": status})
    books.create(f"{SLO}/nodemetrics", {**of_slo("NodeMetric"), "spec": {}})
    books.create(f"{SLO}/nodeslos", {**of_slo("NodeSLO"), "spec": {"resourceUsedThresholdWithBE": thresholds(40)}})
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    spec = {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}], "volumes": volumes}
    annotations = {"koordinator.sh/blkioQOS": json.dumps({"blocks": [{"name": "data", "type": "podvolume"}]})}
    labels = {"koordinator.sh/qosClass": "BE"}
    metadata = {"name": "batch", "labels": labels, "annotations": annotations}
    path = f"{CORE}/namespaces/default/pods"
    code, pod = books.plane.request("POST", path, {"metadata": metadata, "spec": spec})
    assert code == 201, pod.get("message")
    uid = pod["metadata"]["uid"]
    machine.write_cpus([(0, cpu, 0) for cpu in range(4)])
    machine.write("/proc/stat", "cpu 0 0 0 0 0 0 0 0\n")
    machine.write("/proc/meminfo", f"MemTotal: {16 << 20} kB\nMemFree: 1024 kB\nMemAvailable: {8 << 20} kB\n")
    machine.write_numa_memory(0, 16 << 20)
    machine.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    for folder in (f"kubepods/besteffort/pod{uid}", f"kubepods/besteffort/pod{uid}/c0"):
        cgroup = f"/sys/fs/cgroup/{folder}"
        machine.write(f"{cgroup}/cpu.stat", "usage_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n")
        machine.write(f"{cgroup}/memory.stat", MEMORY_STAT.format(2 * GIB, 0))
    report_devices(machine, healthy=True)
    containers = [{"name": "c", "containerID": "containerd://c0"}]
    return {**pod, "status": {"phase": "Running", "qosClass": "BestEffort", "containerStatuses": containers}}


def of_slo(kind: str) -> dict[str, Any]:
    return {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": kind, "metadata": {"name": NODE}}


def thresholds(memory: int) -> dict[str, Any]:
    return {"enable": True, "memoryEvictThresholdPercent": memory}


def report_devices(machine: FakeMachine, *, healthy: bool) -> None:
    machine.write("/xpus/devices.json", json.dumps([xpu(0, status={"healthy": healthy})]))


def until(holds: Callable[[], object], what: str, log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"no {what}: {log.read_text(errors='replace')[-3000:]}"
        time.sleep(0.1)


def test_every_right_is_used_and_none_is_missing(books: Audited, tmp_path: Path) -> None:
    machine, request = FakeMachine(tmp_path / "machine"), books.plane.request
    pod, log = give_it_work(books, machine), log_of(machine)
    arguments = ["--addr=0", f"--feature-gates={GATES}"]
    with kubelet([pod]) as port, koordlet(OURS, NODE, machine, port, books.kubeconfig, arguments) as process:
        until(lambda: request("GET", TOPOLOGY)[0] == 200, "NodeResourceTopology", log)
        until(lambda: request("GET", DEVICE)[0] == 200, "Device", log)
        annotations = {"node.koordinator.sh/cpu-topology": "{}"}
        assert request("PATCH", TOPOLOGY, {"metadata": {"annotations": annotations}})[0] == 200
        report_devices(machine, healthy=False)

        def repeat_a_mistake() -> bool:
            """Two policies that are wrong in the same way: the second time the event is a series."""
            for memory in (41, 42):
                spec = {
                    "resourceUsedThresholdWithBE": thresholds(memory),
                    "systemStrategy": {"watermarkScaleFactor": -1},
                }
                assert request("PATCH", NODE_SLO, {"spec": spec})[0] == 200
                time.sleep(0.2)
            return not idle_rights(books)

        until(lambda: ("create", "", "pods/eviction") in books.used(), "eviction", log)
        until(repeat_a_mistake, "use of every right", log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert books.refused() == []
    assert books.granted() - books.used() == OF_KUBELET
    assert books.used() - books.granted() == set()


def test_its_config_map_takes_effect_while_it_runs(books: Audited, tmp_path: Path) -> None:
    """With the rights of config/rbac. A mistake is refused with an event; corrected, a pod is evicted."""
    machine, request = FakeMachine(tmp_path / "machine"), books.plane.request
    pod, log = give_it_work(books, machine), log_of(machine)
    namespaced = f"{CORE}/namespaces/koordinator-system"

    def refusals() -> list[str]:
        events = request("GET", f"{namespaced}/events")[1]["items"]
        return [each["message"] for each in events if each["reason"] == "InvalidConfiguration"]

    with kubelet([pod]) as port, koordlet(OURS, NODE, machine, port, books.kubeconfig, ["--addr=0"]) as process:
        until(lambda: request("GET", TOPOLOGY)[0] == 200, "NodeResourceTopology", log)
        metadata = {"name": "koordlet-config"}
        document = {"metadata": metadata, "data": {"feature-gates": "BEMemoryEvct=true"}}
        assert request("POST", f"{namespaced}/configmaps", document)[0] == 201
        until(refusals, "event", log)
        assert ("create", "", "pods/eviction") not in books.used()
        data = {"feature-gates": "BEMemoryEvict=true"}
        assert request("PATCH", f"{namespaced}/configmaps/koordlet-config", {"data": data})[0] == 200
        until(lambda: ("create", "", "pods/eviction") in books.used(), "eviction", log)
        assert process.poll() is None
    (refusal,) = refusals()
    assert "'BEMemoryEvct' is not usable: did you mean BEMemoryEvict" in refusal
    assert books.refused() == []


def idle_rights(books: Audited) -> set[Right]:
    return books.idle() - OF_KUBELET


@contextmanager
def kubelet_with_authorization(folder: Path) -> Iterator[None]:
    """The kubelet of a real node, started anew: it asks the API server who calls, and whether they may."""
    path, pid_file = folder / "kubelet.yaml", folder / "kubelet.pid"
    settings = yaml.safe_load(path.read_text())
    settings["authentication"] = {"anonymous": {"enabled": False}, "webhook": {"enabled": True, "cacheTTL": "1s"}}
    settings["authorization"] = {"mode": "Webhook"}
    path.write_text(yaml.safe_dump(settings))
    pid = int(pid_file.read_text())
    command = [word.decode() for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if word]
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + SECONDS
    while Path(f"/proc/{pid}").exists() and b"\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "the kubelet does not end"
        time.sleep(0.1)
    with (folder / "kubelet.log").open("ab") as log:
        variables = {**os.environ, "KUBECONFIG": ""}
        with subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=variables) as process:
            pid_file.write_text(str(process.pid))
            try:
                yield
            finally:
                process.terminate()


def response_of_kubelet(path: str, token: str) -> int:
    """The HTTP status; 0 where nobody responds."""
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"https://127.0.0.1:10250{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5, context=unverified) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


def test_kubelet_tells_koordlet_of_its_pods_and_configuration_and_does_nothing_else_for_it(
    books: Audited,
) -> None:
    # Paths of sockets may have 108 characters, which those of pytest's folders come near to.
    with tempfile.TemporaryDirectory(prefix="krn", ignore_cleanup_errors=True) as name:
        folder = Path(name) / "node"
        node = real_node(books.plane.kubeconfig, folder, "roles-node", "roles-test")
        with node, kubelet_with_authorization(folder):
            deadline = time.monotonic() + SECONDS
            while response_of_kubelet("/pods/", TOKEN) != 200:
                assert time.monotonic() < deadline, (folder / "kubelet.log").read_text(errors="replace")[-2000:]
                time.sleep(0.5)
            paths = ("/configz", "/exec/default/pod/container?command=id", "/logs/", "/metrics")
            assert [response_of_kubelet(path, TOKEN) for path in paths] == [200, 403, 403, 403]
            assert response_of_kubelet("/pods/", "") == 401
