"""The proxy's own calls to the container runtime: its version, and what it runs (to restore what a restart lost)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from koordinator.api import codec
from koordinator.api.protobuf import cri_pb2 as cri
from koordinator.api.protobuf.runtime_hooks_pb2 import ContainerResourceHookRequest, PodSandboxHookRequest
from koordinator.node.grpc_client import GrpcClient
from koordinator.node.grpc_messages import INTERNAL, UNIMPLEMENTED, GrpcError
from koordinator.runtime_proxy.merging import of_pod

logger = logging.getLogger(__name__)

A = TypeVar("A", bound=Message)

VERSIONS: Final = ("runtime.v1", "runtime.v1alpha2")
"""Packages of the Container Runtime Interface, the preferred one first."""
_LIST_SECONDS: Final = 5.0
_STATUS_SECONDS: Final = 2.0


class RuntimeClient:
    """Calls to one container runtime."""

    def __init__(self, path: Path) -> None:
        self._client = GrpcClient(path)
        self._version = VERSIONS[0]

    async def version(self) -> cri.VersionResponse:
        """The runtime's version, of the newest interface that it has. GrpcError if it does not respond."""
        try:
            return await self._call("Version", b"", cri.VersionResponse, _LIST_SECONDS)
        except GrpcError as error:
            if error.code != UNIMPLEMENTED or self._version == VERSIONS[-1]:
                raise
        self._version = VERSIONS[-1]
        return await self._call("Version", b"", cri.VersionResponse, _LIST_SECONDS)

    async def pods(self) -> dict[str, PodSandboxHookRequest]:
        """All pod sandboxes by id, with what a list has of them: all but the parent cgroup. GrpcError if it fails."""
        response = await self._call("ListPodSandbox", b"", cri.ListPodSandboxResponse, _LIST_SECONDS)
        return {pod.id: _pod(pod) for pod in response.items}

    async def containers(self, pods: Mapping[str, PodSandboxHookRequest]) -> dict[str, ContainerResourceHookRequest]:
        """All containers of ``pods`` by id, with what a list has of them: no resources, no environment.

        GrpcError if it fails.
        """
        response = await self._call("ListContainers", b"", cri.ListContainersResponse, _LIST_SECONDS)
        found = {}
        for container in response.containers:
            pod = pods.get(container.pod_sandbox_id)
            if pod is None:
                logger.warning("container %s: its sandbox %s is unknown", container.id, container.pod_sandbox_id)
            else:
                found[container.id] = _container(container, pod)
        return found

    async def find_pod(self, identifier: str) -> PodSandboxHookRequest | None:
        """All that the runtime knows of one pod sandbox; None if it does not know it, or does not respond in time."""
        response = await self._status("PodSandboxStatus", identifier, cri.PodSandboxStatusResponse)
        if response is None:
            return None
        pod = _pod(response.status)
        parent = _at(response.info, "config", "linux", "cgroup_parent")
        pod.cgroup_parent = parent if isinstance(parent, str) else ""
        return pod

    async def find_container(
        self, identifier: str, pod_of: Callable[[str], Awaitable[PodSandboxHookRequest | None]]
    ) -> ContainerResourceHookRequest | None:
        """All that the runtime says of one container, in the pod that ``pod_of`` gives for a sandbox; else None."""
        response = await self._status("ContainerStatus", identifier, cri.ContainerStatusResponse)
        if response is None:
            return None
        sandbox = _at(response.info, "sandboxID")
        pod = await pod_of(sandbox) if isinstance(sandbox, str) else None
        if pod is None:
            return None
        container = _container(response.status, pod)
        if response.status.resources.HasField("linux"):
            container.container_resources.CopyFrom(response.status.resources.linux)
        envs = _at(response.info, "config", "envs")
        for env in envs if isinstance(envs, list) else ():
            if isinstance(env, dict) and isinstance(env.get("key"), str) and isinstance(env.get("value", ""), str):
                container.container_envs[env["key"]] = env.get("value", "")
        return container

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    async def _status(self, method: str, identifier: str, response: type[A]) -> A | None:
        request = cri.StatusRequest(id=identifier, verbose=True).SerializeToString()
        try:
            return await self._call(method, request, response, _STATUS_SECONDS)
        except GrpcError as error:
            logger.warning("%s of %s: %s", method, identifier, error)
            return None

    async def _call(self, method: str, message: bytes, response: type[A], seconds: float) -> A:
        content = await self._client.unary(f"/{self._version}.RuntimeService/{method}", message, seconds)
        try:
            return response.FromString(content)
        except DecodeError as error:
            raise GrpcError(INTERNAL, f"{method}: {error}") from error


def _pod(found: cri.PodSandbox | cri.PodSandboxStatus) -> PodSandboxHookRequest:
    return PodSandboxHookRequest(
        pod_meta=found.metadata,
        runtime_handler=found.runtime_handler,
        labels=found.labels,
        annotations=found.annotations,
    )


def _container(found: cri.Container | cri.ContainerStatus, pod: PodSandboxHookRequest) -> ContainerResourceHookRequest:
    container = of_pod(pod)
    container.container_meta.id = found.id
    container.container_meta.name = found.metadata.name
    container.container_meta.attempt = found.metadata.attempt
    container.container_annotations.update(found.annotations)
    return container


def _at(info: Mapping[str, str], *path: str) -> object:
    """What stands at a path of the runtime's own description, a JSON document; None if there is no such thing."""
    try:
        found: object = codec.decode_any(info.get("info", "{}"))
    except codec.DecodeError:
        return None
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found
