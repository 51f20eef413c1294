"""Which calls of docker's HTTP API are intercepted, and what happens around each of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlsplit

import msgspec

from koordinator.api.codec import decode
from koordinator.api.protobuf.runtime_hooks_pb2 import (
    ContainerResourceHookRequest,
    ContainerResourceHookResponse,
    PodSandboxHookRequest,
    PodSandboxHookResponse,
)
from koordinator.runtime_proxy import docker_messages, merging
from koordinator.runtime_proxy.checkpoints import Checkpoints
from koordinator.runtime_proxy.hook_dispatcher import HookDispatcher
from koordinator.runtime_proxy.hook_servers import HookPoint
from koordinator.runtime_proxy.interceptor import SkipLabel

logger = logging.getLogger(__name__)

_ROUTE: Final = re.compile(r"(?:/v\d\.\d+)?/containers/(?:(create)|(\w+)(?:/(start|stop|update))?)", re.ASCII)
_NOT_MODIFIED, _NOT_FOUND = 304, 404


class DockerCall(Protocol):
    """What one intercepted call is given to. Without ``takes_body`` its body passes, and ``before`` gets b""."""

    takes_body: bool

    async def before(self, body: bytes) -> bytes | None:
        """The body in the place of the one that came; None to let it be. HookError fails the call."""
        ...

    async def after(self, status: int, body: bytes) -> None:
        """Docker has responded. ``body`` is that of the response, for calls with ``takes_body``."""
        ...


class DockerInterceptor:
    """Gives each intercepted call a handler of its own. ``cgroup_driver`` is docker's: ``systemd`` or ``cgroupfs``."""

    def __init__(self, hooks: HookDispatcher, checkpoints: Checkpoints, skip_label: SkipLabel) -> None:
        self.hooks = hooks
        self.checkpoints = checkpoints
        self.skip_label = skip_label
        self.cgroup_driver = ""

    def handler(self, method: str, target: str) -> DockerCall | None:
        """The handler of one call; None for calls that pass."""
        url = urlsplit(target)
        route = _ROUTE.fullmatch(url.path)
        if route is None:
            return None
        create, identifier, action = route.groups()
        if create:
            name = docker_messages.parse_name("".join(parse_qs(url.query).get("name", [])))
            # A container that the kubelet did not create: hook servers are not called for it.
            return None if name is None else CreateContainer(self, name)
        if action is None:
            return RemoveContainer(self, identifier) if method == "DELETE" else None
        return _ACTIONS[action](self, identifier)


class _Call:
    takes_body = False

    def __init__(self, interceptor: DockerInterceptor) -> None:
        self._hooks = interceptor.hooks
        self._checkpoints = interceptor.checkpoints
        self._skip_label = interceptor.skip_label
        self._driver = interceptor.cgroup_driver

    async def _call_hooks(self, hook: HookPoint, container: ContainerResourceHookRequest) -> bool:
        return await self._hooks.before(
            hook, container, ContainerResourceHookResponse, merging.merge_container_response
        )


class CreateContainer(_Call):
    """Of a sandbox, or of a container in one."""

    takes_body = True

    def __init__(self, interceptor: DockerInterceptor, name: docker_messages.ContainerName) -> None:
        super().__init__(interceptor)
        self._name = name
        self._pod: PodSandboxHookRequest | None = None
        self._container: ContainerResourceHookRequest | None = None

    async def before(self, body: bytes) -> bytes | None:
        try:
            document = decode(body, dict[str, Any])
            labels = document.get("Labels") or {}
            host = document.get("HostConfig") or {}
            if labels.get(docker_messages.TYPE_LABEL) == docker_messages.SANDBOX_TYPE:
                self._pod = docker_messages.pod_of(self._name, labels, host, self._driver)
            else:
                self._container = self._container_of(document, labels, host)
        except (ValueError, TypeError, AttributeError) as error:
            logger.warning("a container is created without hooks: its description cannot be read: %s", error)
            return None
        changed = await (self._change_pod(host) if self._pod is not None else self._change_container(document, host))
        if not changed:
            return None
        document["HostConfig"] = host
        return msgspec.json.encode(document)

    async def after(self, status: int, body: bytes) -> None:
        if not _succeeded(status):
            return
        try:
            identifier = decode(body, dict[str, Any])["Id"]
        except (ValueError, KeyError):
            logger.warning("docker's response to a create has no Id: the container is not remembered")
            return
        if self._pod is not None:
            self._checkpoints.pods.put(identifier, self._pod)
        elif self._container is not None:
            self._container.container_meta.id = identifier
            self._checkpoints.containers.put(identifier, self._container)

    def _container_of(
        self, document: dict[str, Any], labels: dict[str, str], host: dict[str, Any]
    ) -> ContainerResourceHookRequest | None:
        sandbox = labels.get(docker_messages.SANDBOX_ID_LABEL, "")
        pod = self._checkpoints.pods.get(sandbox)
        if pod is None:
            logger.warning("a container of the unknown sandbox %r is created without hooks", sandbox)
            return None
        return docker_messages.container_of(self._name, pod, labels, host, document.get("Env") or [])

    async def _change_pod(self, host: dict[str, Any]) -> bool:
        pod = self._pod
        assert pod is not None
        if self._skip_label.is_on(pod) or not await self._hooks.before(
            HookPoint.PRE_RUN_POD_SANDBOX, pod, PodSandboxHookResponse, docker_messages.merge_pod_response
        ):
            return False
        docker_messages.change_resources(host, pod.resources, update=False)
        docker_messages.change_parent(host, pod.cgroup_parent, self._driver)
        return True

    async def _change_container(self, document: dict[str, Any], host: dict[str, Any]) -> bool:
        container = self._container
        if container is None or self._skip_label.is_on_pod_of(container):
            return False
        if not await self._call_hooks(HookPoint.PRE_CREATE_CONTAINER, container):
            return False
        docker_messages.change_resources(host, container.container_resources, update=False)
        docker_messages.change_parent(host, container.pod_cgroup_parent, self._driver)
        docker_messages.change_environment(document, container.container_envs)
        return True


class _OfContainer(_Call):
    def __init__(self, interceptor: DockerInterceptor, identifier: str) -> None:
        super().__init__(interceptor)
        self._identifier = identifier
        self._container = self._checkpoints.containers.get(identifier)
        if self._container is not None and self._skip_label.is_on_pod_of(self._container):
            self._container = None

    def _forget(self) -> None:
        self._checkpoints.containers.delete(self._identifier)
        self._checkpoints.pods.delete(self._identifier)


class StartContainer(_OfContainer):
    """No hook for sandboxes, and none for what is not known."""

    async def before(self, body: bytes) -> None:
        if self._container is not None:
            await self._call_hooks(HookPoint.PRE_START_CONTAINER, self._container)

    async def after(self, status: int, body: bytes) -> None:
        if self._container is not None and _succeeded(status):
            self._checkpoints.containers.put(self._identifier, self._container)
            await self._hooks.after(HookPoint.POST_START_CONTAINER, self._container)


class StopContainer(_OfContainer):
    """Of a container or of a sandbox."""

    async def before(self, body: bytes) -> None:
        return

    async def after(self, status: int, body: bytes) -> None:
        pod = self._checkpoints.pods.get(self._identifier)
        if self._container is not None:
            await self._hooks.after(HookPoint.POST_STOP_CONTAINER, self._container)
        elif pod is not None and not self._skip_label.is_on(pod):
            await self._hooks.after(HookPoint.POST_STOP_POD_SANDBOX, pod)
        if _succeeded(status) or status == _NOT_FOUND:
            self._forget()


class RemoveContainer(_OfContainer):
    """No hook; what ended by itself was never stopped, and is forgotten here."""

    async def before(self, body: bytes) -> None:
        return

    async def after(self, status: int, body: bytes) -> None:
        if _succeeded(status) or status == _NOT_FOUND:
            self._forget()


class UpdateContainer(_OfContainer):
    """Docker gets all resources, as hooks have left them."""

    takes_body = True

    async def before(self, body: bytes) -> bytes | None:
        if self._container is None:
            return None
        try:
            document = decode(body, dict[str, Any])
            merging.update_resources(self._container, docker_messages.resources_of(document))
        except (ValueError, TypeError) as error:
            logger.warning("a container is updated without hooks: what is wanted cannot be read: %s", error)
            self._container = None
            return None
        if not await self._call_hooks(HookPoint.PRE_UPDATE_CONTAINER_RESOURCES, self._container):
            return None
        docker_messages.change_resources(document, self._container.container_resources, update=True)
        return msgspec.json.encode(document)

    async def after(self, status: int, body: bytes) -> None:
        if self._container is not None and _succeeded(status):
            self._checkpoints.containers.put(self._identifier, self._container)


_ACTIONS: Final[dict[str, Callable[[DockerInterceptor, str], DockerCall]]] = {
    "start": StartContainer,
    "stop": StopContainer,
    "update": UpdateContainer,
}


def _succeeded(status: int) -> bool:
    return 200 <= status < 300 or status == _NOT_MODIFIED
