"""A node that is a folder: kernel files that either koordlet reads and writes, and a kubelet on a read-only port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.free_ports import free_ports
from tests.node.machine import FakeMachine
from tests.real.programs import RealPrograms

OURS = (sys.executable, "-m", "koordinator.koordlet")


class _FakeKubelet(ThreadingHTTPServer):
    """Answers ``/pods/`` with what is in ``pods`` at the time, and ``/configz``."""

    def __init__(self, pods: list[dict[str, Any]], given: Mapping[str, Any]) -> None:
        configuration = {"kubeletconfig": {"cgroupDriver": "cgroupfs", **given}}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = (
                    {"kind": "PodList", "apiVersion": "v1", "items": pods} if self.path == "/pods/" else configuration
                )
                body = json.dumps(page).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
                return

        super().__init__(("127.0.0.1", 0), Handler)


@contextmanager
def kubelet(pods: list[dict[str, Any]], configuration: Mapping[str, Any] | None = None) -> Iterator[int]:
    """Its port. The pods may be changed meanwhile."""
    server = _FakeKubelet(pods, configuration or {})
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def koordlet(
    program: Sequence[str], node: str, machine: FakeMachine, port: int, kubeconfig: Path, arguments: Sequence[str]
) -> Iterator[subprocess.Popen[bytes]]:
    """One that takes the machine for its node; its log is beside the machine's folder."""
    host, root = machine.host, machine.root
    folders = {
        "cgroup-root-dir": host.cgroup,
        "sys-root-dir": host.sys,
        "sys-fs-root-dir": host.sys_fs,
        "proc-root-dir": host.proc,
        "var-run-root-dir": host.var_run,
        "run-root-dir": host.run,
        "var-lib-kubelet-dir": host.var_lib_kubelet,
        "prediction-checkpoint-filepath": f"{root}/forecasts",
        "xpu-device-infos-dir": f"{root}/xpus",
        "tsdb-path": f"{root}/samples",
        "audit-log-dir": f"{root}/audit",
    }
    command = [*program, f"--kubeconfig={kubeconfig}", *(f"--{name}={folder}/" for name, folder in folders.items())]
    command += ["--kubelet-insecure-tls", f"--kubelet-read-only-port={port}", *arguments]
    variables = {**os.environ, "NODE_NAME": node, "agent_mode": "hostMode"}
    with log_of(machine).open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=variables)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@contextmanager
def both_koordlets(
    programs: RealPrograms,
    machines: Mapping[str, FakeMachine],
    pods: Mapping[str, list[dict[str, Any]]],
    kubeconfig: Path,
    folder: Path,
    arguments: Sequence[str],
    kubelet_configuration: Mapping[str, Any] | None = None,
) -> Iterator[None]:
    """Ours and the Go original at work, on the machines ``ours`` and ``original`` of the nodes of these names, without
    NRI. ``pods`` is what each node's kubelet tells of, and ``kubelet_configuration`` how it is configured. Skips the
    test where the original is absent."""
    original = programs.original / "koordlet"
    if not original.is_file():
        pytest.skip(f"the original's koordlet is absent: put it into {programs.original}")
    # It wants a port that is not 0 for each of its two servers.
    address, profiles = (f"127.0.0.1:{port}" for port in free_ports(2))
    own = {
        "ours": (OURS, ["--addr=0"]),
        "original": ((str(original),), [f"-addr={address}", f"-pprof-addr={profiles}", "--logtostderr=true"]),
    }
    with ExitStack() as running:
        for name, (program, flags) in own.items():
            port = running.enter_context(kubelet(pods[name], kubelet_configuration))
            hooks = [f"--runtime-hooks-addr={folder}/{name}.sock", f"--runtime-hooks-config-path={folder}"]
            given = [*arguments, *flags, *hooks, "--enable-nri-runtime-hook=false"]
            running.enter_context(koordlet(program, name, machines[name], port, kubeconfig, given))
        yield


@contextmanager
def pretended_lscpu(folder: Path, cpus: Sequence[tuple[int, int]]) -> Iterator[None]:
    """What the original asks for CPUs, which would tell of this machine's: of each the socket, which is its NUMA node,
    and the number of its core."""
    rows = [f"{cpu} {node} {node} {core} {core}:{core}:{core}:{node} yes" for cpu, (node, core) in enumerate(cpus)]
    table = "\n".join(["CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE", *rows])
    folder.mkdir()
    program = folder / "lscpu"
    program.write_text(f"#!/bin/sh\ncat <<T\n{table}\nT\n")
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        yield


def log_of(machine: FakeMachine) -> Path:
    return machine.root.with_suffix(".log")
