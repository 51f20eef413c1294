"""What the process of a node agent loads: every node has one, beside the pods that it is there for."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web

from koordinator.api.kinds import NODES
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from koordinator.kube.connect import ClientOptions, connected
from tests.free_ports import free_ports
from tests.koordlet.node_under_test import NODE, NodeUnderTest

_LOADED = re.compile(r"^import time:.*\| +([\w.]+)$", re.MULTILINE)
_HEAVY = {"numpy", "rich", "aiohttp"}


async def _kubelet(requested: asyncio.Event, port: int) -> web.AppRunner:
    async def pods(request: web.Request) -> web.Response:
        requested.set()
        return web.json_response({"kind": "PodList", "items": []})

    application = web.Application()
    application.router.add_get("/pods/", pods)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner


async def _loaded(folder: Path, addr: str) -> set[str]:
    """The modules that koordlet has loaded once its loops run."""
    NodeUnderTest(folder)
    kubeconfig, (port,), requested = folder / "kubeconfig", free_ports(1), asyncio.Event()
    async with asyncio.timeout(60), EmbeddedApi(ServerOptions()) as api:
        api.write_kubeconfig(kubeconfig)
        async with connected(ClientOptions(kubeconfig=str(kubeconfig))) as client:
            addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
            await client.create(NODES, {"metadata": {"name": NODE}, "status": {"addresses": addresses}})
            kubelet = await _kubelet(requested, port)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-X", "importtime", "-m", "koordinator.koordlet"),
                *(f"--kubeconfig={kubeconfig}", f"--addr={addr}"),
                *("--kubelet-insecure-tls", f"--kubelet-read-only-port={port}"),
                *(f"--cgroup-root-dir={folder}/sys/fs/cgroup", f"--sys-root-dir={folder}/sys"),
                *(f"--sys-fs-root-dir={folder}/sys/fs", f"--proc-root-dir={folder}/proc"),
                stderr=subprocess.PIPE,
                env={**os.environ, "NODE_NAME": NODE, "agent_mode": "hostMode"},
            )
            await requested.wait()
            process.terminate()
            _, said = await process.communicate()
            await kubelet.cleanup()
    assert process.returncode == 0, said.decode()
    return set(_LOADED.findall(said.decode()))


def test_an_agent_that_serves_nothing_loads_neither_numpy_nor_rich_nor_a_web_framework(tmp_path: Path) -> None:
    loaded = asyncio.run(_loaded(tmp_path, "0"))
    assert "koordinator.koordlet.agent" in loaded
    assert not loaded & _HEAVY


def test_an_agent_that_serves_loads_them_no_more(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    loaded = asyncio.run(_loaded(tmp_path, f"127.0.0.1:{port}"))
    assert "koordinator.kube.serving" in loaded
    assert not loaded & _HEAVY


def test_what_few_nodes_need_is_not_loaded_with_the_program() -> None:
    """The library of protocol buffers is for NRI and runtime proxies, that of entry points for nodes with plugins, and
    that of YAML for programs outside of a cluster: 5 MiB together."""
    code = "import koordinator.koordlet.main, koordinator.kube.serving, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "koordinator.koordlet.main" in loaded
    assert not loaded & {"google.protobuf", "importlib.metadata", "yaml", "aiohttp"}


@pytest.mark.parametrize("module", sorted(_HEAVY))
def test_what_is_not_loaded_is_what_would_be_seen(module: str) -> None:
    """The names are those that Python reports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import {module}"], capture_output=True, text=True, check=True
    )
    assert module in _LOADED.findall(done.stderr)
