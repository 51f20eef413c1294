"""``koord up`` from start to stop."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from koordinator.api.annotations import CPU_SHARED_POOLS, DEVICE_ALLOCATED, RESOURCE_STATUS
from koordinator.api.cpu_list import parse_cpu_list
from koordinator.api.kinds import NODE_RESOURCE_TOPOLOGIES, PODS
from koordinator.api.labels import QOS_CLASS
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.api.pod import Pod
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY_RATIO
from koordinator.kube.client import KubeClient
from tests.e2e.running import Up, eventually, koord_up, plain_pod, start_koord_up
from tests.free_ports import free_ports
from tests.waiting import once

Shared = tuple[asyncio.Runner, Up]
"""One that tests share, since to start it costs more than what each does, and the event loop that it belongs to."""


@contextmanager
def shared_up(folder: Path, *arguments: str) -> Iterator[Shared]:
    with asyncio.Runner() as runner:
        up = koord_up(folder, *arguments)
        yield runner, runner.run(up.__aenter__())
        runner.run(up.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def whole_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Each test has pods of its own names."""
    with shared_up(tmp_path_factory.mktemp("whole"), "--nodes=2", "--gpu-nodes=1") as found:
        yield found


@pytest.fixture(scope="module")
def api_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """The API server alone, which tests leave as it is."""
    with shared_up(tmp_path_factory.mktemp("api"), "--only=apiserver") as found:
        yield found


def test_a_pod_is_placed_and_runs_and_survives_a_restart(tmp_path: Path) -> None:
    async def scenario() -> tuple[str, str, int | None]:
        async with koord_up(tmp_path, "--nodes=3") as up:
            client = await up.client()
            try:
                await client.create(PODS, plain_pod("web"), "default")
                first = await eventually(client, "web", lambda pod: pod.status.phase == "Running", "running")
            finally:
                await client.close()
        status = up.process.returncode
        # The pod has its node, and needs only that to run again.
        async with koord_up(tmp_path, "--only=apiserver,nodes", "--nodes=3") as up:
            client = await up.client()
            try:
                again = await eventually(client, "web", lambda pod: pod.status.phase == "Running", "running")
            finally:
                await client.close()
        return first.spec.node_name, again.spec.node_name, status

    first, again, status = asyncio.run(scenario())
    assert first
    assert (again, status) == (first, 0)


def test_the_first_pod_gets_cpus_of_its_own_and_koordlet_keeps_others_off_them(whole_up: Shared) -> None:
    """A node's CPUs are known before its first pod. That the pools of its CPUs change says that koordlet runs there:
    nobody else changes them."""
    whole = {"cpu": "2", "memory": "1Gi"}
    container = {"name": "main", "image": "example", "resources": {"requests": whole, "limits": whole}}
    spec = {"containers": [container], "priorityClassName": "koord-prod", "schedulerName": "koord-scheduler"}
    pod = {"metadata": {"name": "web", "labels": {QOS_CLASS: "LSR"}}, "spec": spec}

    runner, up = whole_up

    async def scenario() -> tuple[frozenset[int], frozenset[int]]:
        client = await up.client()
        try:
            before = {each.metadata.name: shared(each) for each in await topologies(client)}
            await client.create(PODS, pod, "default")
            running = await eventually(client, "web", lambda pod: pod.status.phase == "Running", "running")
            node = running.spec.node_name
            changed = await once(
                client, NODE_RESOURCE_TOPOLOGIES,
                lambda each: each.metadata.name == node and shared(each) != before[node],
            )  # fmt: skip
        finally:
            await client.close()
        cpus = parse_cpu_list(json.loads(running.metadata.annotations[RESOURCE_STATUS])["cpuset"])
        return cpus, before[node] - shared(changed)

    async def topologies(client: KubeClient) -> Sequence[NodeResourceTopology]:
        return (await client.list(NODE_RESOURCE_TOPOLOGIES)).items

    def shared(topology: NodeResourceTopology) -> frozenset[int]:
        pools = json.loads(topology.metadata.annotations[CPU_SHARED_POOLS])
        return frozenset().union(*(parse_cpu_list(pool["cpuset"]) for pool in pools))

    cpus, taken = runner.run(scenario())
    assert (len(cpus), taken) == (2, cpus)


def test_a_pod_gets_a_half_of_a_gpu(whole_up: Shared) -> None:
    """From the Device of the node over its resources to the number of the GPU."""
    half = {GPU_CORE: "50", GPU_MEMORY_RATIO: "50"}
    container = {"name": "main", "image": "example", "resources": {"requests": half, "limits": half}}

    runner, up = whole_up

    async def scenario() -> Pod:
        client = await up.client()
        try:
            pod = {"metadata": {"name": "half"}, "spec": {"containers": [container]}}
            await client.create(PODS, pod, "default")
            return await eventually(client, "half", lambda pod: pod.status.phase == "Running", "running")
        finally:
            await client.close()

    pod = runner.run(scenario())
    (allocated,) = json.loads(pod.metadata.annotations[DEVICE_ALLOCATED])["gpu"]
    assert (pod.spec.node_name, allocated["minor"], allocated["resources"][GPU_CORE]) == ("gpu-0", 0, "50")


def test_the_kubeconfig_is_for_its_owner_only(api_up: Shared) -> None:
    _, up = api_up
    assert stat.S_IMODE(up.kubeconfig.stat().st_mode) == 0o600


def test_a_second_one_on_the_same_folder_is_refused(api_up: Shared) -> None:
    runner, up = api_up
    status, error = runner.run(_koord_up_fails(f"--data={up.data}"))
    first = up.process.pid
    assert status == 1
    assert error == (
        f"koord: a koord up runs already on {up.data} (process {first}): stop it with Ctrl-C where it runs or with "
        f"kill {first}, or choose another folder with --data\n"
    )


def test_taken_ports_are_named_before_anything_starts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with socket.socket() as one, socket.socket() as other:
        ports = []
        for listener in (one, other):
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            ports.append(listener.getsockname()[1])
        taken = [f"--port={ports[0]}", f"--webhook-port={ports[1]}"]
        status, error = asyncio.run(_koord_up_fails(f"--data={data}", *taken, "--free-ports"))
    assert status == 1
    for port, flag in zip(ports, ("--port", "--webhook-port"), strict=True):
        assert re.search(
            rf"port {port} \(.*\) is taken by process {os.getpid()} .*: choose another with {flag}\n", error
        )
    assert "starting" not in error
    assert not (data / "logs").exists()


def test_what_a_killed_one_has_left_is_cleaned_up_by_the_next(tmp_path: Path) -> None:
    async def scenario() -> tuple[bool, list[str]]:
        (port,) = free_ports(1)
        async with koord_up(tmp_path, "--only=apiserver", port=port) as up:
            (server,) = psutil.Process(up.process.pid).children()
            # Halted, it sleeps through the signal that the kernel sends it when its parent dies, and keeps its port.
            server.suspend()
            up.process.kill()
            await up.process.wait()
        async with koord_up(tmp_path, "--only=apiserver", port=port) as up:
            return server.is_running(), up.output

    is_left, output = asyncio.run(scenario())
    assert not is_left
    assert any(line.startswith("koord up: ending apiserver (process ") for line in output)


def test_status_distinguishes_a_healthy_cluster_from_a_sick_one_and_from_none(tmp_path: Path) -> None:
    async def scenario() -> list[tuple[int | None, Any]]:
        seen = []
        async with koord_up(tmp_path, "--only=apiserver,nodes", "--nodes=2") as up:
            seen.append(await _status(tmp_path))
            (nodes,) = (
                each
                for each in psutil.Process(up.process.pid).children()
                if "koordinator.cluster.nodes" in each.cmdline()
            )
            nodes.suspend()
            while nodes.status() != psutil.STATUS_STOPPED:
                await asyncio.sleep(0.01)
            seen.append(await _status(tmp_path))
        seen.append(await _status(tmp_path))
        return seen

    (healthy_status, healthy), (sick_status, sick), (none_status, none) = asyncio.run(scenario())
    assert (healthy_status, sick_status, none_status) == (0, 1, 3)
    assert healthy["nodes"] == {"total": 2, "ready": 2}
    assert [program["healthy"] for program in healthy["programs"]] == [True, True]
    assert sick["status"] == "unhealthy"
    assert "halted by a signal" in sick["programs"][1]["error"]
    assert none["status"] == "not running"


async def _status(data: Path) -> tuple[int | None, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "koordinator.cli.main", "status", f"--data={data}", "-o", "json"),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return process.returncode, json.loads(output)


@pytest.mark.parametrize("halted", [False, True])
def test_ctrl_c_while_starting_ends_everything_without_a_traceback(tmp_path: Path, halted: bool) -> None:
    async def scenario() -> tuple[int | None, str, list[psutil.Process]]:
        process = await start_koord_up(tmp_path, "--only=apiserver")
        assert process.stdout is not None
        children: list[psutil.Process] = []
        while not children:
            await asyncio.sleep(0.01)
            # Not before it is another program: until then, its parent is waiting for it in the middle of a system call.
            each = psutil.Process(process.pid).children()
            children = [child for child in each if "koordinator.cluster" in child.cmdline()]
        if halted:
            children[0].suspend()
        process.send_signal(signal.SIGINT)
        output, _ = await asyncio.wait_for(process.communicate(), 20)
        return process.returncode, output.decode(), [child for child in children if child.is_running()]

    status, output, left = asyncio.run(scenario())
    assert (status, left) == (130, [])
    assert "Traceback" not in output
    assert "killed" not in output.partition("stopping;")[2].partition("\n")[2]


def test_everything_ends_while_the_api_server_is_away(tmp_path: Path) -> None:
    async def scenario() -> tuple[int | None, str, list[psutil.Process], float]:
        async with koord_up(tmp_path, "--nodes=2") as up:
            children = psutil.Process(up.process.pid).children()
            for child in children:
                if "koordinator.cluster" in child.cmdline():
                    child.kill()
            began = time.monotonic()
            up.process.send_signal(signal.SIGTERM)
            output, _ = await up.process.communicate()
            took = time.monotonic() - began
            return up.process.returncode, output.decode(), [each for each in children if each.is_running()], took

    status, output, left, took = asyncio.run(scenario())
    assert (status, left) == (0, [])
    assert "Traceback" not in output
    assert took < 12


async def _koord_up_fails(*arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *("-m", "koordinator.cli.main", "up", *arguments), stderr=asyncio.subprocess.PIPE
    )
    _, error = await process.communicate()
    return process.returncode, error.decode()


def test_a_killed_scheduler_comes_back_and_schedules(tmp_path: Path) -> None:
    async def scenario() -> str:
        async with koord_up(tmp_path, "--only=apiserver,nodes,scheduler", "--nodes=2") as up:
            client = await up.client()
            try:
                _kill_scheduler_of(up.process.pid)
                await client.create(PODS, plain_pod("late"), "default")
                return (await eventually(client, "late", lambda pod: bool(pod.spec.node_name), "bound")).spec.node_name
            finally:
                await client.close()

    assert asyncio.run(scenario())


def _kill_scheduler_of(parent: int) -> None:
    (scheduler,) = (each for each in psutil.Process(parent).children() if "koordinator.scheduler" in each.cmdline())
    scheduler.kill()


def test_a_running_cluster_says_what_its_descheduler_would_do_and_is_found_by_its_kubeconfig(whole_up: Shared) -> None:
    """With nothing but KUBECONFIG, as after the first line that ``koord up`` prints."""

    runner, up = whole_up
    plan, status = (runner.run(_koord(up.kubeconfig, *words)) for words in (("explain", "rebalance"), ("status",)))
    assert re.search(r"a cycle that began now would evict 0 pods of \d pods? on 3 nodes", " ".join(plan.split()))
    assert "koord up is healthy" in status
    assert "descheduler  ok" in status


async def _koord(kubeconfig: Path, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "koordinator.cli.main", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
    )
    printed, _ = await process.communicate()
    return printed.decode()


def test_one_in_the_background_is_found_read_and_stopped(tmp_path: Path) -> None:
    async def koord(*arguments: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "koordinator.cli.main", *arguments, f"--data={tmp_path}"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return process.returncode, output.decode()

    async def scenario() -> list[tuple[int | None, str]]:
        up = await koord("up", "--detach", "--only=apiserver", "--free-ports")
        return [up, await koord("status"), await koord("logs", "up"), await koord("down"), await koord("status")]

    up, running, logs, down, gone = asyncio.run(scenario())
    assert (up[0], running[0], logs[0], down[0], gone[0]) == (0, 0, 0, 0, 3), (up, running, logs, down, gone)
    assert "down --data" in up[1]
    assert "The cluster is up (apiserver)" in logs[1]
    assert down[1].startswith("stopped (process ")
