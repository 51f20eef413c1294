"""The programs of a node that koordlet works with, as far as they respond: the container runtime, the kubelet,
koordlet's own hook server, which runtime proxies call before a container starts, and koordlet itself, which reports
which runtimes call it.

Each is queried, since a socket alone may be left of a program that has ended.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

from koordinator.api.codec import decode
from koordinator.base.protobuf_wire import MalformedMessageError
from koordinator.node.container_runtime import runtime_socket, runtime_version
from koordinator.node.errors import FileError, NodeError, Unavailable
from koordinator.node.features import Feature, FeatureState, Undetermined, Works, probe_socket
from koordinator.node.grpc_client import GrpcClient
from koordinator.node.host import Host, read_text
from koordinator.node.pod_resources import list_pod_resources, pod_resources_socket

_SECONDS: Final = 5.0
_KOORDLET: Final = "koordlet, running, with the same --addr"
_MAX_METRICS: Final = 32 << 20
_CGROUPS: Final = re.compile(r'^koordlet_pod_cgroups\{.*?state="(\w+)".*?\} ([0-9.]+)$', re.MULTILINE)
_MODE: Final = re.compile(r'^koordlet_runtime_hooks_mode\{.*?mode="(\w+)".*?\} ([0-9.]+)$', re.MULTILINE)


async def probe_node_programs(host: Host, hook_servers: str, koordlet: str) -> tuple[Feature, ...]:
    """Query all at once; the line of one that cannot be queried says so. ``hook_servers`` is the folder of
    registrations, ``koordlet`` is where koordlet serves its metrics, as HOST:PORT."""
    rows: tuple[tuple[str, tuple[str, ...], Awaitable[FeatureState]], ...] = (
        ("container runtime (CRI)", ("koord-runtime-proxy",), _runtime(host)),
        ("pod-resources API of kubelet", ("PodResourcesProxy",), _pod_resources(host)),
        ("hook server of koordlet", ("runtime hooks in proxy mode",), _hook_server(f"{hook_servers}/koordlet.json")),
        ("runtime hooks of koordlet", ("runtime hooks",), _of_koordlet(koordlet, _hook_modes)),
        ("cgroups of pods", ("all that koordlet does for pods",), _of_koordlet(koordlet, _pod_cgroups)),
    )
    states = await asyncio.gather(*(state for _, _, state in rows))
    return tuple(Feature(name, used_by, state) for (name, used_by, _), state in zip(rows, states, strict=True))


async def _runtime(host: Host) -> FeatureState:
    path = runtime_socket(host)
    if isinstance(path, Unavailable):
        return path

    async def query(client: GrpcClient) -> str:
        version = await runtime_version(client)
        return f"{version.name} {version.version}, {version.api_version}, at {path}"

    return await _probe(path, query, "a container runtime that responds")


async def _pod_resources(host: Host) -> FeatureState:
    async def query(client: GrpcClient) -> str:
        pods = await list_pod_resources(client)
        with_devices = sum(any(container.devices for container in pod.containers) for pod in pods)
        return f"pods: {len(pods)}, with devices: {with_devices}"

    return await _probe(pod_resources_socket(host), query, "kubelet, running")


async def _probe(path: str, query: Callable[[GrpcClient], Awaitable[str]], needs: str) -> FeatureState:
    state = probe_socket(path, needs)
    if not isinstance(state, Works):
        return state
    client = GrpcClient(Path(path))
    try:
        return Works(await query(client))
    except (NodeError, MalformedMessageError) as error:
        return Unavailable(f"{path}: {error}", needs)
    finally:
        client.close()


async def _hook_server(registration: str) -> FeatureState:
    needs = "koordlet with --runtime-hooks-addr, running"
    try:
        socket = str(decode(read_text(registration), dict[str, Any])["remote-endpoint"])
    except FileError as error:
        return Unavailable(str(error), needs)
    except (ValueError, KeyError, TypeError):
        return Unavailable(f"{registration} is not JSON with a remote-endpoint", needs)
    try:
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_unix_connection(socket)
    except PermissionError:
        return Undetermined(f"{socket} may not be written by this user", "root")
    except OSError as error:
        return Unavailable(f"{registration} names {socket}: {error.strerror or 'it does not respond in time'}", needs)
    writer.close()
    return Works(f"registered at {registration}")


async def _of_koordlet(koordlet: str, read: Callable[[str, str], FeatureState]) -> FeatureState:
    """What the metrics of koordlet say, by ``read(address, text)``."""
    try:
        text = await asyncio.to_thread(_metrics, koordlet)
    except (OSError, HTTPException) as error:
        return Unavailable(f"http://{koordlet}/metrics: {error}", _KOORDLET)
    return read(koordlet, text)


def _hook_modes(koordlet: str, text: str) -> FeatureState:
    modes = {match[1]: float(match[2]) > 0 for match in _MODE.finditer(text)}
    if not modes:
        return Unavailable(f"http://{koordlet}/metrics says nothing of runtime hooks", _KOORDLET)
    active = [mode for mode, is_active in modes.items() if is_active]
    if not active:
        return Unavailable(f"koordlet at {koordlet} has all of {', '.join(modes)} off", "one of them switched on")
    off = [mode for mode in modes if mode not in active]
    return Works(f"active: {', '.join(active)}" + (f"; not active: {', '.join(off)}" if off else ""))


def _pod_cgroups(koordlet: str, text: str) -> FeatureState:
    counts = {match[1]: int(float(match[2])) for match in _CGROUPS.finditer(text)}
    if not counts:
        return Unavailable(f"http://{koordlet}/metrics says nothing of the cgroups of pods", _KOORDLET)
    found, missing = counts.get("found", 0), counts.get("missing", 0)
    if missing:
        reason = f"of {found + missing} pods that run, {missing} have not all cgroups where koordlet looks for them"
        return Unavailable(reason, "a layout of cgroups that koordlet knows; its log names the pods and the folders")
    return Works(f"found: {found}")


def _metrics(address: str) -> str:
    connection = HTTPConnection(address, timeout=_SECONDS)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read(_MAX_METRICS).decode(errors="replace")
    finally:
        connection.close()
