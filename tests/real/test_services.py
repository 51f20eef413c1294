"""What the services answer, beside the Go original on the same cluster: keys, values, status and text must be equal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from koordinator.api.codec import decode_any
from koordinator.api.kinds import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    NODE_METRICS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Kind,
)
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.meta import Object
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from tests.base.profiling.pprof_file import read_pprof, read_units
from tests.free_ports import free_ports
from tests.real import plugin_services
from tests.real.control_plane import ControlPlane
from tests.real.document_comparison import differences, unlike
from tests.real.programs import RealPrograms
from tests.real.scheduler_configuration import LOAD_AWARE, write_configuration
from tests.real_world.pods import BATCH_CLASS, OVERHEAD_CLASS
from tests.real_world.pods import PODS as PODS_AS_PEOPLE_HAVE_THEM

SHAPES_NODE = "real-world"
RUNTIME_CLASSES = Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", Object, namespaced=False)
PATHS = [
    "/apis/v1/__services__",
    "/apis/v1/nodes/a",
    "/apis/v1/nodes/b",
    "/apis/v1/nodes/real-world",
    "/apis/v1/nodes/nowhere",
    "/apis/v1/plugins/LoadAwareScheduling/node/a",
    "/apis/v1/plugins/LoadAwareScheduling/node/nowhere",
]
FLAGS = [
    *(("s", text) for text in ("5", "-1", "+7", "abc", "", " 5", "1_0", "9" * 19, "9" * 30, "0")),
    *(("f", text) for text in ("true", "T", "yes", "", "0")),
    *(("d", text) for text in ("1", "x", "false")),
    *(("db", text) for text in ("TRUE", "x", "F")),
    *(("v", text) for text in ("3", "x", "-1", "+1", "", "99999999999", "9" * 30, "1")),
    ("zz", "1"),
]
PROFILES = ["/debug/pprof/profile?seconds=1", "/debug/pprof/goroutine", "/debug/pprof/heap?seconds=1"]


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    content_type: str
    text: str


@dataclass(frozen=True, slots=True)
class Responses:
    documents: dict[str, HttpResponse]
    flags: dict[tuple[str, str], HttpResponse]
    index: list[HttpResponse]
    scrapes: dict[str, HttpResponse]
    profiles: dict[str, tuple[int, str, bytes]]


def affinity() -> dict[str, Any]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    everywhere = {**term, "namespaceSelector": {}}
    return {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{**term, "namespaces": ["one", "two"]}],
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": everywhere}],
        },
    }


def pod(name: str, *, requests: dict[str, str], container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "x", "resources": {"requests": requests, "limits": requests}, **(container or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"schedulerName": "koord-scheduler", "nodeName": "a", "containers": [main], **spec},
    }


def pods() -> list[dict[str, Any]]:
    sidecar = {"name": "side", "image": "x", "restartPolicy": "Always", "ports": [{"containerPort": 9, "hostPort": 9}]}
    first = {"name": "first", "image": "x", "resources": {"requests": {"cpu": "2"}}}
    local = {"containerPort": 81, "hostPort": 8081, "hostIP": "127.0.0.1", "protocol": "UDP"}
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    some = {"cpu": "500m", "memory": "256Mi"}
    return [
        pod("bare", requests={}),
        pod("ports", requests=some, container={"ports": [{"containerPort": 80, "hostPort": 8080}, local]}),
        pod("terms", requests=some, affinity=affinity()),
        pod("claim", requests=some, volumes=[claim]),
        pod("sidecar", requests=some, initContainers=[first, sidecar]),
        pod("batch", requests={"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}),
    ]


async def build(client: KubeClient) -> None:
    for document in custom_resource_definitions():
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, document)
    for name in ("a", "b", SHAPES_NODE):
        resources = {"cpu": "8", "memory": "16Gi", "pods": "20", "ephemeral-storage": "50Gi", "example.com/gpu": "2"}
        resources |= {"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "8Gi"}
        images = [{"names": ["x:1", "x@sha256:00"], "sizeBytes": 1000}]
        await client.create(NODES, {"metadata": {"name": name}, "spec": {"unschedulable": name == "b"}})
        status = {"status": {"capacity": resources, "allocatable": resources, "images": images}}
        await client.patch(NODES, name, status, PatchType.MERGE, subresource="status")
    for document in pods():
        await client.create(PODS, document, "default")
    await create_shapes(client)
    await until_served(client)
    used = {"resources": {"cpu": "2", "memory": "4Gi"}}
    alone = {"name": "ports", "namespace": "default", "podUsage": {"resources": {"cpu": "100m", "memory": "50Mi"}}}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metric = {"status": {"updateTime": now, "nodeMetric": {"nodeUsage": used}, "podsMetric": [alone]}}
    await client.patch(NODE_METRICS, "a", metric, PatchType.MERGE, subresource="status")


async def create_shapes(client: KubeClient) -> None:
    """Pods as people have them, on a node of their own, as they are once they run."""
    await client.create(NAMESPACES, {"metadata": {"name": SHAPES_NODE}})
    await client.create(RUNTIME_CLASSES, OVERHEAD_CLASS)
    await client.create(PRIORITY_CLASSES, BATCH_CLASS)
    for shape in PODS_AS_PEOPLE_HAVE_THEM:
        await client.create(PODS, shape.document(SHAPES_NODE, node=SHAPES_NODE), SHAPES_NODE)
        for change in shape.changes:
            patch, how = dict(change.patch), PatchType.STRATEGIC
            await client.patch(PODS, shape.name, patch, how, SHAPES_NODE, subresource=change.subresource)
        status = shape.running(SHAPES_NODE, SHAPES_NODE, "uid")["status"]
        await client.patch(PODS, shape.name, {"status": status}, PatchType.MERGE, SHAPES_NODE, subresource="status")


async def until_served(client: KubeClient) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await client.create(NODE_METRICS, {"metadata": {"name": "a"}, "spec": {}})
            except ApiStatusError as error:
                if not error.is_not_found:
                    raise
                await asyncio.sleep(0.1)
            else:
                return


@asynccontextmanager
async def running(
    command: list[str], log: Path, port: int, sees_all: Callable[[aiohttp.ClientSession, str], Awaitable[bool]]
) -> AsyncIterator[str]:
    """The address of a scheduler that has seen the whole cluster."""
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(*command, stdout=file, stderr=file)
    address = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(60), aiohttp.ClientSession() as session:
            while not await is_seen(session, address, sees_all):
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.1)
        yield address
    finally:
        # The original does not listen to SIGTERM.
        process.kill()
        await process.wait()


async def is_seen(
    session: aiohttp.ClientSession, address: str, sees_all: Callable[[aiohttp.ClientSession, str], Awaitable[bool]]
) -> bool:
    try:
        return await sees_all(session, address)
    except aiohttp.ClientConnectionError:
        return False


async def sees_everything(session: aiohttp.ClientSession, address: str) -> bool:
    load = await send(session, "GET", f"{address}/apis/v1/plugins/LoadAwareScheduling/node/a")
    node = await send(session, "GET", f"{address}/apis/v1/nodes/a")
    shapes = await send(session, "GET", f"{address}/apis/v1/nodes/{SHAPES_NODE}")
    if not load.status == node.status == shapes.status == 200:
        return False
    known = decode_any(load.text.encode())
    seen = len(decode_any(shapes.text.encode())["pods"])
    return "nodeDelta" in known and len(known["pods"]) == len(pods()) and seen == len(PODS_AS_PEOPLE_HAVE_THEM)


async def send(session: aiohttp.ClientSession, method: str, url: str, body: str | None = None) -> HttpResponse:
    async with session.request(method, url, data=body) as response:
        return HttpResponse(response.status, response.headers.get("Content-Type", ""), await response.text("utf-8"))


async def profile(session: aiohttp.ClientSession, url: str) -> tuple[int, str, bytes]:
    async with session.get(url) as response:
        return response.status, response.headers["Content-Type"], await response.read()


async def interview(address: str) -> Responses:
    async with aiohttp.ClientSession() as session:
        documents = {path: await send(session, "GET", address + path) for path in PATHS}
        flags = {
            (name, text): await send(session, "PUT", f"{address}/debug/flags/{name}", text) for name, text in FLAGS
        }
        index = [
            await send(session, method, f"{address}/debug/flags{path}")
            for method, path in (("GET", ""), ("GET", "/"), ("GET", "/s"), ("POST", "/s"), ("PUT", ""), ("GET", "/s/"))
        ]
        profiles = {path: await profile(session, f"{address}{path}") for path in PROFILES}
        await send(session, "GET", f"{address}/healthz")
        scrapes = {path: await send(session, "GET", f"{address}{path}") for path in ("/metrics/resources", "/metrics")}
    return Responses(documents, flags, index, scrapes, profiles)


async def both(programs: RealPrograms, plane: ControlPlane, folder: Path) -> tuple[Responses, Responses]:
    client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig), qps=0))
    try:
        await build(client)
    finally:
        await client.close()
    (original, one), (ours, other) = commands(programs, plane, folder, LOAD_AWARE)
    async with running(original, folder / "original.log", one, sees_everything) as address:
        theirs = await interview(address)
    async with running(ours, folder / "ours.log", other, sees_everything) as address:
        return theirs, await interview(address)


def commands(
    programs: RealPrograms, plane: ControlPlane, folder: Path, profile: Mapping[str, Any]
) -> list[tuple[list[str], int]]:
    """The original's and ours, with the ports of their services."""
    configuration = write_configuration(folder / "scheduler.yaml", kubeconfig=plane.kubeconfig, profile=profile)
    one, other = free_ports(2)
    shared = [f"--config={configuration}", "--enable-network-topology-manager=true"]
    original = [
        *(str(programs.original / "koord-scheduler"), *shared, "--secure-port=0", f"--port={one}"),
        *(f"--{what}-kubeconfig={plane.kubeconfig}" for what in ("authentication", "authorization")),
    ]
    return [(original, one), ([sys.executable, "-m", "koordinator.scheduler", *shared, f"--port={other}"], other)]


async def plugin_documents(
    programs: RealPrograms, plane: ControlPlane, folder: Path
) -> list[dict[str, tuple[int, str, Any]]]:
    """Of each program: path -> status, content type and document."""
    client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig), qps=0))
    shown: list[dict[str, tuple[int, str, Any]]] = []
    try:
        await plugin_services.build(client)
        for number, (command, port) in enumerate(commands(programs, plane, folder, plugin_services.CHART_PROFILE)):

            async def shows_everything(session: aiohttp.ClientSession, address: str) -> bool:
                await plugin_services.touch(client)
                return plugin_services.is_shown(await documents_at(session, address))

            async with (
                running(command, folder / f"{number}.log", port, shows_everything) as address,
                aiohttp.ClientSession() as session,
            ):
                shown.append(await documents_at(session, address))
    finally:
        await client.close()
    return shown


async def documents_at(session: aiohttp.ClientSession, address: str) -> dict[str, tuple[int, str, Any]]:
    found = {path: await send(session, "GET", f"{address}{path}") for path in plugin_services.PATHS}
    return {path: (each.status, each.content_type, decode_any(each.text.encode())) for path, each in found.items()}


@pytest.fixture(scope="module")
def responses(
    real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Responses, Responses]]:
    """The original's and ours, on a cluster of its own: its nodes are all that schedulers may see."""
    folder = tmp_path_factory.mktemp("services")
    with ControlPlane(real_programs.kubernetes, folder / "cluster") as plane:
        yield asyncio.run(both(real_programs, plane, folder))


@pytest.mark.parametrize("path", PATHS)
def test_the_document_is_the_original_s(responses: tuple[Responses, Responses], path: str) -> None:
    theirs, ours = (each.documents[path] for each in responses)
    assert (ours.status, ours.content_type) == (theirs.status, theirs.content_type)
    documents = (decode_any(each.text.encode()) for each in (theirs, ours))
    assert differences(*documents) == []


@pytest.mark.parametrize(("flag", "value"), FLAGS)
def test_setting_a_flag_is_answered_as_by_the_original(
    responses: tuple[Responses, Responses], flag: str, value: str
) -> None:
    theirs, ours = (each.flags[flag, value] for each in responses)
    assert ours == theirs


@pytest.mark.parametrize("path", PROFILES)
def test_a_profile_comes_as_from_the_original(responses: tuple[Responses, Responses], path: str) -> None:
    theirs, ours = (each.profiles[path] for each in responses)
    assert ours[:2] == theirs[:2]
    assert read_pprof(ours[2]).units[-1] in read_units(theirs[2])


def samples(response: HttpResponse, prefix: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """By name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
        if sample.name.startswith(prefix)
    }


def test_what_pods_request_and_may_use_is_shown_as_by_the_original(responses: tuple[Responses, Responses]) -> None:
    theirs, ours = (each.scrapes["/metrics/resources"] for each in responses)
    assert (ours.status, ours.content_type.partition(";")[0]) == (theirs.status, theirs.content_type.partition(";")[0])
    shown = samples(theirs, "kube_pod_resource")
    assert shown
    # The original multiplies milli-CPU by 0.001: 1900m is 1.9000000000000001 there.
    assert samples(ours, "kube_pod_resource") == pytest.approx(shown, rel=1e-12)


def test_feature_gates_have_the_original_s_stages(responses: tuple[Responses, Responses]) -> None:
    theirs, ours = (samples(each.scrapes["/metrics"], "kubernetes_feature_enabled") for each in responses)
    assert ours
    assert ours.items() <= theirs.items()


def test_the_list_of_flags_is_the_original_s(responses: tuple[Responses, Responses]) -> None:
    theirs, ours = responses
    assert ours.index == theirs.index


@pytest.fixture(scope="module")
def of_plugins(
    real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[dict[str, tuple[int, str, Any]]]]:
    """The original's and ours, with the profile of the chart."""
    folder = tmp_path_factory.mktemp("plugins")
    with ControlPlane(real_programs.kubernetes, folder / "cluster") as plane:
        yield asyncio.run(plugin_documents(real_programs, plane, folder))


@pytest.mark.parametrize("path", plugin_services.PATHS)
def test_a_plugin_s_document_has_the_keys_and_types_of_the_original_s(
    of_plugins: list[dict[str, tuple[int, str, Any]]], path: str
) -> None:
    theirs, ours = (each[path] for each in of_plugins)
    assert ours[:2] == theirs[:2]
    assert unlike(theirs[2], ours[2]) == []
