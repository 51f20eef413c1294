"""koordlet with the rights of config/rbac and no others: nothing is forbidden, and no right is idle.

The machine is a folder and kubelet a small server on its read-only port, so that what is measured is under control.
What kubelet itself asks the API server about a caller (nodes/pods, nodes/configz) takes a real kubelet to see.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.koordlet.devices.test_devices import xpu
from tests.koordlet.node_under_test import GIB, MEMORY_STAT
from tests.node.machine import FakeMachine
from tests.real.audited import Audited, Right, audited
from tests.real.manager_cluster import prepare
from tests.real.programs import RealPrograms

CORE = "/api/v1"
SLO = "/apis/slo.koordinator.sh/v1alpha1"
NODE = "n1"
NODE_SLO = f"{SLO}/nodeslos/{NODE}"
TOPOLOGY = f"/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/{NODE}"
DEVICE = f"/apis/scheduling.koordinator.sh/v1alpha1/devices/{NODE}"
GATES = "Accelerators=true,BEMemoryEvict=true"
OF_KUBELET = {("get", "", "nodes/pods"), ("get", "", "nodes/configz")}
SECONDS = 60.0


@pytest.fixture
def books(real_programs: RealPrograms, tmp_path: Path) -> Iterator[Audited]:
    with audited(real_programs.kubernetes, tmp_path, "koordlet") as made:
        prepare(made.plane)
        made.install()
        yield made


class FakeKubelet(ThreadingHTTPServer):
    """Answers ``/pods/`` and ``/configz`` on a port of its own."""

    def __init__(self, pods: list[dict[str, Any]]) -> None:
        pages = {"/pods/": {"items": pods}, "/configz": {"kubeletconfig": {"cgroupDriver": "cgroupfs"}}}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(pages[self.path]).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
                return

        super().__init__(("127.0.0.1", 0), Handler)


@contextmanager
def kubelet(pods: list[dict[str, Any]]) -> Iterator[int]:
    """Its port."""
    server = FakeKubelet(pods)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def give_it_work(books: Audited, machine: FakeMachine) -> dict[str, Any]:
    """A node whose memory is half used, which is too much, by one batch pod; the pod as kubelet tells of it."""
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "10"}
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    status = {"capacity": amounts, "allocatable": amounts, "addresses": addresses}
    books.create(f"{CORE}/nodes", {"metadata": {"name": NODE}, "status": status})
    books.create(f"{SLO}/nodemetrics", {**of_slo("NodeMetric"), "spec": {}})
    books.create(f"{SLO}/nodeslos", {**of_slo("NodeSLO"), "spec": {"resourceUsedThresholdWithBE": thresholds(40)}})
    spec = {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]}
    labels = {"koordinator.sh/qosClass": "BE"}
    path = f"{CORE}/namespaces/default/pods"
    code, pod = books.plane.request("POST", path, {"metadata": {"name": "batch", "labels": labels}, "spec": spec})
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


@contextmanager
def koordlet(books: Audited, machine: FakeMachine, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    host, root = machine.host, machine.root
    folders = {
        "cgroup-root-dir": host.cgroup,
        "sys-root-dir": host.sys,
        "sys-fs-root-dir": host.sys_fs,
        "proc-root-dir": host.proc,
        "var-run-root-dir": host.var_run,
        "run-root-dir": host.run,
        "var-lib-kubelet-dir": host.var_lib_kubelet,
        "prediction-checkpoint-filepath": root / "forecasts",
        "xpu-device-infos-dir": root / "xpus",
    }
    command = [sys.executable, "-m", "koordinator.koordlet", "--addr=0", f"--kubeconfig={books.kubeconfig}"]
    command += [f"--{name}={folder}" for name, folder in folders.items()]
    command += ["--kubelet-insecure-tls", f"--kubelet-read-only-port={port}", f"--feature-gates={GATES}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, "NODE_NAME": NODE, "agent_mode": "hostMode"}
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def until(holds: Callable[[], object], what: str, log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"no {what}: {log.read_text(errors='replace')[-3000:]}"
        time.sleep(0.1)


def test_every_right_is_used_and_none_is_missing(books: Audited, tmp_path: Path) -> None:
    machine, log, request = FakeMachine(tmp_path / "machine"), tmp_path / "koordlet.log", books.plane.request
    pod = give_it_work(books, machine)
    with kubelet([pod]) as port, koordlet(books, machine, port, log) as process:
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


def idle_rights(books: Audited) -> set[Right]:
    return books.idle() - OF_KUBELET
