"""What koord doctor says of the programs of a node: those that respond, those that have left a socket, and none."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from koordinator.base.clock import SystemClock
from koordinator.base.metrics import Metrics
from koordinator.base.protobuf_wire import encode_message, encode_text
from koordinator.base.served_connections import ProgramConnections
from koordinator.node.errors import Unavailable
from koordinator.node.features import FeatureState, Works
from koordinator.node.grpc_server import GrpcServer, Handler
from koordinator.node.host import Host
from koordinator.node.node_programs import probe_node_programs

RUNTIME, PODS, HOOKS = "container runtime (CRI)", "pod-resources API of kubelet", "hook server of koordlet"


@pytest.fixture
def root() -> Iterator[Path]:
    """Of a machine; short, since the path of a socket may not be long."""
    with tempfile.TemporaryDirectory(prefix="np") as folder:
        yield Path(folder)


@asynccontextmanager
async def serving(path: Path, method: str, response: bytes) -> AsyncIterator[None]:
    async def handle(_: bytes) -> bytes:
        return response

    handlers: dict[str, Handler] = {method: handle}
    path.parent.mkdir(parents=True)
    listening = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(
            GrpcServer(handlers, ProgramConnections(Metrics(), SystemClock())).run(str(path), listening.set)
        )
        await listening.wait()
        yield
        task.cancel()


async def states(root: Path, koordlet: str = "127.0.0.1:1") -> dict[str, FeatureState]:
    """Nobody listens at port 1."""
    features = await probe_node_programs(Host.below(root), f"{root}/etc/runtime/hookserver.d", koordlet)
    return {feature.name: feature.state for feature in features}


def register(root: Path, content: str) -> None:
    folder = root / "etc/runtime/hookserver.d"
    folder.mkdir(parents=True)
    (folder / "koordlet.json").write_text(content)


def test_a_runtime_whose_response_is_no_message(root: Path) -> None:
    path = root / "var/run/containerd/containerd.sock"

    async def query() -> dict[str, FeatureState]:
        async with serving(path, "/runtime.v1.RuntimeService/Version", b"\x0a\x7f"):
            return await states(root)

    state = asyncio.run(query())[RUNTIME]
    assert isinstance(state, Unavailable)
    assert state.reason.endswith("a field of 127 bytes is cut off after 0")


def test_a_runtime_says_what_it_is(root: Path) -> None:
    path = root / "var/run/containerd/containerd.sock"
    response = encode_text(1, "0.1.0") + encode_text(2, "containerd") + encode_text(3, "1.7.2") + encode_text(4, "v1")

    async def query() -> dict[str, FeatureState]:
        async with serving(path, "/runtime.v1.RuntimeService/Version", response):
            return await states(root)

    assert asyncio.run(query())[RUNTIME] == Works(f"containerd 1.7.2, v1, at {path}")


def test_kubelet_says_how_many_pods_have_devices(root: Path) -> None:
    path = root / "var/lib/kubelet/pod-resources/kubelet.sock"
    with_device = encode_text(1, "a") + encode_message(3, encode_message(2, encode_text(1, "nvidia.com/gpu")))
    response = encode_message(1, with_device) + encode_message(1, encode_text(1, "b"))

    async def query() -> dict[str, FeatureState]:
        async with serving(path, "/v1.PodResourcesLister/List", response):
            return await states(root)

    assert asyncio.run(query())[PODS] == Works("pods: 2, with devices: 1")


def test_a_runtime_that_speaks_another_protocol_is_missing(root: Path) -> None:
    async def query() -> dict[str, FeatureState]:
        async with serving(root / "var/run/crio/crio.sock", "/another.Service/Call", b""):
            return await states(root)

    state = asyncio.run(query())[RUNTIME]
    assert isinstance(state, Unavailable)
    assert "crio.sock" in state.reason


def test_the_hook_server_works_when_somebody_listens(root: Path) -> None:
    socket = root / "run/koordlet.sock"
    register(root, json.dumps({"remote-endpoint": str(socket)}))

    async def query() -> list[FeatureState]:
        before = await states(root)
        async with serving(socket, "/any/Method", b""):
            return [before[HOOKS], (await states(root))[HOOKS]]

    before, now = asyncio.run(query())
    assert isinstance(before, Unavailable)
    assert str(socket) in before.reason
    assert now == Works(f"registered at {root}/etc/runtime/hookserver.d/koordlet.json")


@pytest.mark.parametrize("content", ["{", "[]", "{}", '"text"'])
def test_a_registration_that_cannot_be_read_is_named(root: Path, content: str) -> None:
    register(root, content)
    state = asyncio.run(states(root))[HOOKS]
    assert isinstance(state, Unavailable)
    assert state.reason.endswith("koordlet.json is not JSON with a remote-endpoint")


def test_a_machine_without_any(root: Path) -> None:
    assert {type(state) for state in asyncio.run(states(root)).values()} == {Unavailable}


@contextmanager
def koordlet_that_says(text: str) -> Iterator[str]:
    """Its metrics, at an address."""

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Metrics) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def modes(**active: int) -> str:
    return "".join(f'koordlet_runtime_hooks_mode{{mode="{mode}",node="n"}} {on}.0\n' for mode, on in active.items())


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (modes(proxy=1, nri=0, reconciler=1), Works("active: proxy, reconciler; not active: nri")),
        (modes(proxy=1, nri=1, reconciler=1), Works("active: proxy, nri, reconciler")),
        (modes(proxy=0, nri=0), "has all of proxy, nri off"),
        ("other 1.0\n", "says nothing of runtime hooks"),
    ],
)
def test_koordlet_says_in_which_modes_its_hooks_are_called(root: Path, said: str, expected: Works | str) -> None:
    with koordlet_that_says(said) as address:
        state = asyncio.run(states(root, address))["runtime hooks of koordlet"]
    if isinstance(expected, Works):
        assert state == expected
    else:
        assert isinstance(state, Unavailable)
        assert expected in state.reason


def cgroups(**counts: int) -> str:
    return "".join(f'koordlet_pod_cgroups{{node="n",state="{state}"}} {count}.0\n' for state, count in counts.items())


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (cgroups(found=30, missing=0), Works("found: 30")),
        (cgroups(found=2, missing=3), "of 5 pods that run, 3 have not all cgroups where koordlet looks for them"),
        ("other 1.0\n", "says nothing of the cgroups of pods"),
    ],
)
def test_koordlet_says_whether_it_finds_the_cgroups_of_pods(root: Path, said: str, expected: Works | str) -> None:
    with koordlet_that_says(said) as address:
        state = asyncio.run(states(root, address))["cgroups of pods"]
    if isinstance(expected, Works):
        assert state == expected
    else:
        assert isinstance(state, Unavailable)
        assert expected in state.reason


def test_a_koordlet_that_does_not_run_is_named_with_its_address(root: Path) -> None:
    state = asyncio.run(states(root))["runtime hooks of koordlet"]
    assert isinstance(state, Unavailable)
    assert state.reason == "http://127.0.0.1:1/metrics: [Errno 111] Connection refused"
