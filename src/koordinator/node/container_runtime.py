"""The container runtime, over the Container Runtime Interface (CRI, ``runtime.v1``): where it is, and what it is.

The messages are those of k8s.io/cri-api. What carries them is handed in: a gRPC client on a unix socket.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Final, Protocol

from koordinator.base.protobuf_wire import text
from koordinator.node.errors import Unavailable
from koordinator.node.host import Host

_SECONDS: Final = 5.0
_SOCKETS: Final = ("containerd/containerd.sock", "containerd.sock", "crio/crio.sock", "crio.sock", "pouchcri.sock")
"""Below /var/run, in the order in which they are looked for."""


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


async def runtime_version(calls: UnaryCalls) -> RuntimeVersion:
    """Query the runtime. NodeError if it refuses, or does not respond in time."""
    response = await calls.unary("/runtime.v1.RuntimeService/Version", b"", _SECONDS)
    return RuntimeVersion(text(response, 2), text(response, 3), text(response, 4))


def runtime_socket(host: Host) -> str | Unavailable:
    """Where a runtime listens: the first of the usual places that has a socket.

    Docker is not looked for: it has an interface of its own.
    """
    paths = [f"{host.var_run}/{name}" for name in _SOCKETS]
    for path in paths:
        if _is_socket(path):
            return path
    return Unavailable(f"there is no socket at {', '.join(paths)}", "containerd or cri-o, running")


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False
