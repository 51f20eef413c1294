"""The two kinds of runtimes: how each is waited for, how its containers are listed, and how the kubelet is served."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

from koordinator.base.served_connections import ProgramConnections
from koordinator.node.grpc_messages import GrpcError
from koordinator.runtime_proxy import docker_messages
from koordinator.runtime_proxy.checkpoints import Checkpoints
from koordinator.runtime_proxy.docker_interceptor import DockerInterceptor
from koordinator.runtime_proxy.docker_server import DockerServer
from koordinator.runtime_proxy.errors import RuntimeProxyError
from koordinator.runtime_proxy.hook_dispatcher import HookDispatcher
from koordinator.runtime_proxy.interceptor import CriInterceptor, SkipLabel
from koordinator.runtime_proxy.runtime_client import RuntimeClient
from koordinator.runtime_proxy.server import RelayServer

logger = logging.getLogger(__name__)

_DOCKER_SECONDS: Final = 5.0


class EngineError(RuntimeProxyError):
    """The container runtime does not respond as it should."""


class Server(Protocol):
    """What kubelet is served by."""

    async def start(self, path: Path) -> None: ...

    async def stop(self, path: Path, grace: float) -> None: ...


class Engine(Protocol):
    """One container runtime."""

    async def version(self) -> str:
        """Its name and version. EngineError if it does not respond."""
        ...

    async def remember(self) -> None:
        """Add what it runs to the checkpoints, and forget what it does not. EngineError if it does not respond."""
        ...

    def server(self, tasks: asyncio.TaskGroup, connections: ProgramConnections) -> Server:
        """Serves kubelet; ``tasks`` must outlive it, ``connections`` are those to all servers of the program."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


class CriEngine:
    """A runtime that speaks the Container Runtime Interface."""

    def __init__(self, path: Path, hooks: HookDispatcher, checkpoints: Checkpoints, skip_label: SkipLabel) -> None:
        self._path = path
        self._checkpoints = checkpoints
        self._client = RuntimeClient(path)
        self._interceptor = CriInterceptor(hooks, checkpoints, self._client, skip_label)

    async def version(self) -> str:
        try:
            version = await self._client.version()
        except GrpcError as error:
            raise EngineError(f"the container runtime at {self._path}: {error}") from error
        return f"{version.runtime_name} {version.runtime_version}"

    async def remember(self) -> None:
        pods, containers = self._checkpoints.pods, self._checkpoints.containers
        try:
            listed = await self._client.pods()
            for identifier, pod in listed.items():
                if identifier not in pods:
                    pods.put(identifier, pod, partial=True)
            found = await self._client.containers({each: pods.get(each) or pod for each, pod in listed.items()})
        except GrpcError as error:
            raise EngineError(f"what the container runtime runs is not known: {error}") from error
        for identifier, container in found.items():
            if identifier not in containers:
                containers.put(identifier, container, partial=True)
        pods.keep_only(listed)
        containers.keep_only(found)

    def server(self, tasks: asyncio.TaskGroup, connections: ProgramConnections) -> Server:
        return RelayServer(self._interceptor, self._path, tasks, connections)

    def close(self) -> None:
        self._client.close()


class DockerEngine:
    """Docker's daemon."""

    def __init__(self, path: Path, hooks: HookDispatcher, checkpoints: Checkpoints, skip_label: SkipLabel) -> None:
        self._path = path
        self._checkpoints = checkpoints
        self._interceptor = DockerInterceptor(hooks, checkpoints, skip_label)

    async def version(self) -> str:
        info = await self._get("/info")
        self._interceptor.cgroup_driver = str(info.get("CgroupDriver") or "")
        return f"docker {info.get('ServerVersion', '')}"

    async def remember(self) -> None:
        pods, containers = self._checkpoints.pods, self._checkpoints.containers
        listed = await self._get("/containers/json?all=1")
        sandboxes: list[str] = []
        others: list[str] = []
        for each in listed:
            is_sandbox = (each.get("Labels") or {}).get(docker_messages.TYPE_LABEL) == docker_messages.SANDBOX_TYPE
            (sandboxes if is_sandbox else others).append(str(each["Id"]))
        for identifier in sandboxes:
            if identifier not in pods:
                await self._remember_one(identifier)
        for identifier in others:
            if identifier not in containers:
                await self._remember_one(identifier)
        pods.keep_only(sandboxes)
        containers.keep_only(others)

    def server(self, tasks: asyncio.TaskGroup, connections: ProgramConnections) -> Server:
        return DockerServer(self._interceptor, self._path, tasks, connections)

    def close(self) -> None:
        """Its connections are closed after each request."""

    async def _remember_one(self, identifier: str) -> None:
        try:
            found = await self._get(f"/containers/{quote(identifier, safe='')}/json")
            name = docker_messages.parse_name(found["Name"])
            labels, host = found["Config"].get("Labels") or {}, found.get("HostConfig") or {}
            if name is None:
                return
            if labels.get(docker_messages.TYPE_LABEL) == docker_messages.SANDBOX_TYPE:
                pod = docker_messages.pod_of(name, labels, host, self._interceptor.cgroup_driver)
                self._checkpoints.pods.put(identifier, pod)
                return
            of = self._checkpoints.pods.get(labels.get(docker_messages.SANDBOX_ID_LABEL, ""))
            if of is not None:
                environment = found["Config"].get("Env") or []
                container = docker_messages.container_of(name, of, labels, host, environment)
                container.container_meta.id = identifier
                self._checkpoints.containers.put(identifier, container)
        except (EngineError, KeyError, TypeError, ValueError, AttributeError) as error:
            logger.warning("container %s is not remembered: %s", identifier, error)

    async def _get(self, path: str) -> Any:
        # Its 11 MiB are for nodes with docker only.
        from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector

        timeout = ClientTimeout(total=_DOCKER_SECONDS)
        try:
            async with (
                ClientSession(connector=UnixConnector(str(self._path)), timeout=timeout) as session,
                session.get(f"http://docker/v1.39{path}") as response,
            ):
                response.raise_for_status()
                return await response.json(content_type=None)
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            raise EngineError(f"docker at {self._path}: {path}: {error}") from error
