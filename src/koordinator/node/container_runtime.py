"""The container runtime, over the Container Runtime Interface (CRI, ``runtime.v1``): where it is, and what it is asked.

The messages are those of k8s.io/cri-api. What carries them is handed in: a gRPC client on a unix socket.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from koordinator.node.errors import NodeError, Unavailable
from koordinator.node.host import Host
from koordinator.node.protobuf_wire import encode_integer, encode_message, encode_text, text

_SERVICE: Final = "/runtime.v1.RuntimeService"
_SECONDS: Final = 5.0
_SOCKETS: Final[Mapping[str, tuple[str, ...]]] = {
    "containerd": ("containerd/containerd.sock", "containerd.sock"),
    "cri-o": ("crio/crio.sock", "crio.sock"),
    "pouch": ("pouchcri.sock",),
}
"""Below /var/run, in the order in which they are looked for."""


class RuntimeCallError(NodeError):
    """The container runtime was asked for something that makes no sense."""


class UnaryCalls(Protocol):
    """A gRPC client."""

    async def unary(self, method: str, message: bytes, timeout: float) -> bytes:
        """Call ``/package.Service/Method`` and wait ``timeout`` seconds at most; NodeError if the call fails."""
        ...


@dataclass(frozen=True, slots=True)
class RuntimeVersion:
    """What a runtime says that it is."""

    name: str
    version: str
    api_version: str


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """What is to be changed of a container's limits; 0 and empty texts leave a limit as it is.

    ``cpu_period`` and ``cpu_quota`` are in microseconds, a quota of -1 is no quota; ``memory_limit`` is in bytes.
    """

    cpu_period: int = 0
    cpu_quota: int = 0
    cpu_shares: int = 0
    memory_limit: int = 0
    oom_score_adj: int = 0
    cpuset_cpus: str = ""
    cpuset_mems: str = ""

    def encoded(self) -> bytes:
        """As the message LinuxContainerResources."""
        numbers = (self.cpu_period, self.cpu_quota, self.cpu_shares, self.memory_limit, self.oom_score_adj)
        return b"".join(
            (
                *(encode_integer(number, value) for number, value in enumerate(numbers, start=1)),
                encode_text(6, self.cpuset_cpus),
                encode_text(7, self.cpuset_mems),
            )
        )


class ContainerRuntime:
    """One runtime. Each call raises NodeError if the runtime refuses, or does not answer in time."""

    def __init__(self, calls: UnaryCalls) -> None:
        self._calls = calls

    async def version(self) -> RuntimeVersion:
        answer = await self._calls.unary(f"{_SERVICE}/Version", b"", _SECONDS)
        return RuntimeVersion(text(answer, 2), text(answer, 3), text(answer, 4))

    async def update_container_resources(self, container_id: str, resources: ContainerResources) -> None:
        """Change a running container's limits."""
        message = encode_text(1, _checked(container_id)) + encode_message(2, resources.encoded())
        await self._calls.unary(f"{_SERVICE}/UpdateContainerResources", message, _SECONDS)

    async def stop_container(self, container_id: str, grace_seconds: int) -> None:
        """Ask a container to end, and kill it when the grace has passed."""
        message = encode_text(1, _checked(container_id)) + encode_integer(2, grace_seconds)
        # The runtime answers when the container has ended.
        await self._calls.unary(f"{_SERVICE}/StopContainer", message, _SECONDS + grace_seconds)


def runtime_socket(host: Host, runtime: str, endpoint: str = "") -> str | Unavailable:
    """Where a runtime (of a container ID: containerd, cri-o, pouch) listens; ``endpoint`` is looked for last.

    Unavailable for docker, too, which has an interface of its own.
    """
    names = _SOCKETS.get(runtime)
    if names is None:
        return Unavailable(f"runtime type {runtime} is not supported", f"one of {', '.join(_SOCKETS)}")
    paths = [f"{host.var_run}/{name}" for name in names]
    if endpoint:
        paths.append(endpoint.removeprefix("unix://"))
    for path in paths:
        if _is_socket(path):
            return path
    return Unavailable(f"{runtime} endpoint does not exist", f"a socket at {' or '.join(paths)}")


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _checked(container_id: str) -> str:
    if not container_id:
        raise RuntimeCallError("containerID cannot be empty")
    return container_id
