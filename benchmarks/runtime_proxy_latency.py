"""What koord-runtime-proxy adds to calls of the container runtime, beside the Go original before the same runtime.

The runtime is a fake one, made with grpcio, so that its own work hides nothing; with ``--containerd`` it is
a real one. Calls go in turn straight to it, through ours and through the original; ``added`` is a percentile of a
proxy's times minus the same percentile without a proxy. Creating a container asks a hook server, which is the same one
for both proxies. Memory is the largest resident size of each.

The original looks for hook servers in one fixed folder, so each run gives it a mount namespace of its own: that needs
root, and without it the original is left out.

usage: python -m benchmarks.runtime_proxy_latency [--calls 2000] [--containers 200] [--containerd]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.process_usage import OtherLoad, usage_of
from koordinator.api.protobuf import cri_pb2 as cri
from koordinator.node.grpc_client import GrpcClient
from tests.real.container_runtime import IMAGE, ContainerRuntime, CriClient
from tests.real.cri_fuzz import Content, encode
from tests.real.programs import HOW_TO_GET, RealPrograms, find_real_programs
from tests.runtime_proxy.fake_servers import FakeHookServer, FakeRuntime, serving

_SERVICE: Final = "/runtime.v1.RuntimeService"
_HOOKS: Final = ("PreRunPodSandbox", "PreCreateContainer", "PreUpdateContainerResources")
_START_SECONDS: Final = 15.0
_WARM_UP: Final = 100
_SEVERAL: Final = 8
_MOST_CREATED: Final = 150
"""Real containers, each way."""
_BIND: Final = "mkdir -p /etc/runtime/hookserver.d && mount --bind {folder} /etc/runtime/hookserver.d && exec {command}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000, help="of each kind, each way")
    parser.add_argument("--containers", type=int, default=200, help="in the response to ListContainers")
    parser.add_argument("--containerd", action="store_true", help="a real containerd; needs root")
    parser.add_argument("--serve", nargs=2, metavar=("WHAT", "SOCKET"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        uvloop.run(_serve(given.serve[0], Path(given.serve[1]), given.containers))
        return 0
    with tempfile.TemporaryDirectory(prefix="krp") as name:
        print(json.dumps(_measure(Path(name), given.calls, given.containers, given.containerd)))
    return 0


async def _serve(what: str, path: Path, containers: int) -> None:
    server: FakeRuntime | FakeHookServer = FakeHookServer(_change) if what == "hooks" else _runtime(containers)
    async with serving(server, path):
        while True:
            # Otherwise what they remember for tests would fill the memory.
            server.received.clear()
            await asyncio.sleep(1.0)


def _change(request: Any, response: Any) -> None:
    if hasattr(response, "container_resources"):
        response.container_resources.cpu_shares = 512


def _runtime(containers: int) -> FakeRuntime:
    listed = cri.ListContainersResponse()
    for number in range(containers):
        container = listed.containers.add(id=f"{number:064x}", pod_sandbox_id=f"{number:064x}")
        container.metadata.name = f"container-{number}"
        container.annotations.update({f"io.kubernetes.container.{key}": "x" * 20 for key in range(8)})
    content = listed.SerializeToString()

    async def respond(message: bytes, context: Any) -> bytes:
        return content

    return FakeRuntime({"ListContainers": respond})


@dataclass
class _Way:
    """One way to the runtime."""

    client: GrpcClient
    seconds: list[float] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        """In milliseconds."""
        ordered = sorted(self.seconds)
        return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _measure(folder: Path, calls: int, containers: int, is_real: bool) -> dict[str, Any]:
    programs = find_real_programs()
    with ExitStack() as stack:
        this = [sys.executable, "-m", "benchmarks.runtime_proxy_latency", f"--containers={containers}", "--serve"]
        if is_real:
            stack.enter_context(_containerd(folder, containers))
        else:
            stack.enter_context(_running([*this, "runtime", str(folder / "direct")], folder / "direct"))
        stack.enter_context(_running([*this, "hooks", str(folder / "hook")], folder / "hook"))
        (folder / "hooks").mkdir()
        document = {"remote-endpoint": str(folder / "hook"), "failure-policy": "Fail", "runtime-hooks": _HOOKS}
        (folder / "hooks/bench.json").write_text(json.dumps(document))
        processes = {
            name: stack.enter_context(_running(command, folder / name))
            for name, command in _proxies(folder, programs).items()
        }
        other_load = OtherLoad()
        figures = uvloop.run(_cases(folder, ["direct", *processes], calls, _MOST_CREATED if is_real else calls))
        memory = {f"{name}_peak_mib": usage_of(process.pid).peak_bytes >> 20 for name, process in processes.items()}
        return {
            "benchmark": "runtime_proxy_latency",
            "runtime": "containerd" if is_real else "fake",
            "calls": calls,
            "cases": figures,
            **memory,
            "other_cores": round(other_load.cores(), 2),
        }


def _proxies(folder: Path, programs: RealPrograms | None) -> dict[str, list[str]]:
    def sockets(name: str) -> list[str]:
        return [
            f"--koord-runtimeproxy-endpoint={folder / name}",
            f"--remote-runtime-service-endpoint={folder / 'direct'}",
        ]

    ours = [sys.executable, "-m", "koordinator.runtime_proxy", f"--hook-server-dir={folder / 'hooks'}"]
    proxies = {"ours": [*ours, *sockets("ours")]}
    if programs is not None and os.geteuid() == 0 and (programs.original / "koord-runtime-proxy").is_file():
        command = " ".join([str(programs.original / "koord-runtime-proxy"), *sockets("original")])
        script = _BIND.format(folder=folder / "hooks", command=command)
        proxies["original"] = ["unshare", "--mount", "sh", "-c", script]
    return proxies


@contextmanager
def _running(command: list[str], socket: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program, from the moment at which its socket is there to its end."""
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            until = time.monotonic() + _START_SECONDS
            while not socket.exists():
                if process.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    raise RuntimeError(f"{command[0]} did not start: {log.read().decode(errors='replace')}")
                time.sleep(0.05)
            yield process
        finally:
            process.terminate()


@contextmanager
def _containerd(folder: Path, containers: int) -> Iterator[None]:
    """A real one that has some containers; they are removed in the end."""
    programs = find_real_programs()
    if programs is None:
        raise RuntimeError(HOW_TO_GET)
    (folder / "containerd").mkdir()
    runtime = ContainerRuntime(folder / "containerd")
    with runtime.serving(()):
        (folder / "direct").symlink_to(runtime.socket)
        try:
            uvloop.run(_fill(folder / "direct", containers))
            yield
        finally:
            CriClient(programs.kubernetes / "crictl", runtime.socket)("rmp", "--all", "--force")


async def _fill(socket: Path, containers: int) -> None:
    client = GrpcClient(socket)
    sandbox = await _sandbox(client, "filled")
    for number in range(containers):
        await client.unary(f"{_SERVICE}/CreateContainer", _creation(sandbox, "filled", number), 30)
    client.close()


def _pod(name: str) -> Content:
    """A pod in the node's network."""
    return {1: {1: name, 2: name, 3: "bench"}, 8: {1: f"/koord-bench/{name}", 2: {1: {1: 2}}}}


def _creation(sandbox: str, pod: str, number: int) -> bytes:
    """A request for a container that has a small environment."""
    environment = [{1: f"KEY_{each}", 2: "x" * 20} for each in range(20)]
    container = {1: {1: f"c{number}"}, 2: {1: IMAGE}, 3: ["sleep", "1000"], 6: environment, 15: {1: {3: 100}}}
    return encode({1: sandbox, 2: container, 3: _pod(pod)})


async def _sandbox(client: GrpcClient, name: str) -> str:
    response = await client.unary(f"{_SERVICE}/RunPodSandbox", encode({1: _pod(name)}), 30)
    return cri.RunPodSandboxResponse.FromString(response).pod_sandbox_id


async def _cases(folder: Path, names: list[str], calls: int, creations: int) -> dict[str, Any]:
    ways = {name: _Way(GrpcClient(folder / name)) for name in names}
    sandboxes = {name: await _sandbox(way.client, name) for name, way in ways.items()}
    numbers = count()

    async def status(name: str) -> None:
        await ways[name].client.unary(f"{_SERVICE}/Status", b"", 10)

    async def list_containers(name: str) -> None:
        await ways[name].client.unary(f"{_SERVICE}/ListContainers", b"", 10)

    async def create(name: str) -> None:
        request = _creation(sandboxes[name], name, next(numbers))
        await ways[name].client.unary(f"{_SERVICE}/CreateContainer", request, 30)

    async def several(name: str) -> None:
        await asyncio.gather(*(status(name) for _ in range(_SEVERAL)))

    return {
        "Status": await _case(ways, status, calls),
        f"{_SEVERAL} Status at once": await _case(ways, several, calls // _SEVERAL),
        "ListContainers": await _case(ways, list_containers, calls),
        "CreateContainer with a hook": await _case(ways, create, creations),
    }


async def _case(ways: dict[str, _Way], call: Callable[[str], Awaitable[None]], calls: int) -> dict[str, float]:
    for way in ways.values():
        way.seconds.clear()
    names = list(ways)
    warm_up = min(_WARM_UP, calls // 5)
    for number in range(calls + warm_up):
        # What one call leaves to do is felt by the next, so each way has each place equally often.
        for name in (*names[number % len(names) :], *names[: number % len(names)]):
            started = time.perf_counter()
            await call(name)
            if number >= warm_up:
                ways[name].seconds.append(time.perf_counter() - started)
    direct = ways["direct"]
    figures = {f"direct_p{share}_ms": round(direct.percentile(share / 100), 3) for share in (50, 99)}
    for name, way in ways.items():
        for share in (50, 99) if way is not direct else ():
            added = way.percentile(share / 100) - direct.percentile(share / 100)
            figures[f"{name}_added_p{share}_ms"] = round(added, 3)
    return figures


if __name__ == "__main__":
    sys.exit(main())
