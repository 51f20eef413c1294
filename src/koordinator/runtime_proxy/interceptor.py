"""Which calls of the Container Runtime Interface are intercepted, and what happens around each of them.

A call for which no hook server has responded is forwarded byte for byte. The checkpoints change only when the runtime
has completed the call, so a call that failed can be tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from koordinator.api.protobuf import cri_pb2 as cri
from koordinator.api.protobuf.runtime_hooks_pb2 import (
    ContainerResourceHookRequest,
    ContainerResourceHookResponse,
    PodSandboxHookRequest,
    PodSandboxHookResponse,
)
from koordinator.node.grpc_messages import UNKNOWN
from koordinator.runtime_proxy import merging
from koordinator.runtime_proxy.checkpoints import Checkpoints
from koordinator.runtime_proxy.hook_dispatcher import HookDispatcher, HookError
from koordinator.runtime_proxy.hook_servers import HookPoint
from koordinator.runtime_proxy.intercepted_call import CallHandler, Forward, Reject
from koordinator.runtime_proxy.runtime_client import VERSIONS, RuntimeClient

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SkipLabel:
    """Pods with this label are those of hook servers: no hook is called for them."""

    key: str
    value: str

    def is_on(self, pod: PodSandboxHookRequest) -> bool:
        """Whether no hook is called for a pod."""
        return bool(pod.labels.get(self.key) == self.value)

    def is_on_pod_of(self, container: ContainerResourceHookRequest) -> bool:
        """Whether no hook is called for a container."""
        return bool(container.pod_labels.get(self.key) == self.value)


class CriInterceptor:
    """Gives each intercepted call a handler of its own."""

    def __init__(
        self, hooks: HookDispatcher, checkpoints: Checkpoints, runtime: RuntimeClient, skip_label: SkipLabel
    ) -> None:
        self.hooks = hooks
        self.checkpoints = checkpoints
        self.skip_label = skip_label
        self._runtime = runtime

    def handler(self, path: str) -> CallHandler | None:
        """The handler of one call; None for methods that pass."""
        make = _HANDLERS.get(path)
        return None if make is None else make(self)

    async def pod(self, identifier: str) -> PodSandboxHookRequest | None:
        """What is known of a pod; what is not in the checkpoints, or only in part, is read from the runtime."""
        remembered = self.checkpoints.pods.get(identifier)
        if remembered is not None and not self.checkpoints.pods.is_partial(identifier):
            return remembered
        found = await self._runtime.find_pod(identifier)
        if found is not None:
            self.checkpoints.pods.put(identifier, found)
        return found or remembered

    async def container(self, identifier: str) -> ContainerResourceHookRequest | None:
        """What is known of a container; what is not in the checkpoints, or only in part, is read from the runtime."""
        remembered = self.checkpoints.containers.get(identifier)
        if remembered is not None and not self.checkpoints.containers.is_partial(identifier):
            return remembered
        found = await self._runtime.find_container(identifier, self.pod)
        if found is not None:
            self.checkpoints.containers.put(identifier, found)
        return found or remembered


class _Call:
    """What is the same for all handlers: a message that cannot be decoded is the runtime's to refuse."""

    def __init__(self, interceptor: CriInterceptor) -> None:
        self._interceptor = interceptor
        self._hooks = interceptor.hooks
        self._checkpoints = interceptor.checkpoints

    async def before(self, request: bytes) -> Forward | Reject:
        try:
            return Forward(await self._changed(request))
        except DecodeError as error:
            logger.warning("%s passes without hooks: %s", type(self).__name__, error)
            return Forward()
        except HookError as error:
            return Reject(UNKNOWN, str(error))

    async def after(self, response: bytes | None) -> None:
        raise NotImplementedError

    async def _changed(self, request: bytes) -> bytes | None:
        """The request as hooks have changed it; None if they have not."""
        raise NotImplementedError


class RunPodSandbox(_Call):
    """The pod is remembered, also one that skips hooks: its containers skip them, too."""

    _pod: PodSandboxHookRequest | None = None

    async def _changed(self, request: bytes) -> bytes | None:
        run = cri.RunPodSandboxRequest.FromString(request)
        pod = self._pod = merging.pod_hook_request(run)
        if self._interceptor.skip_label.is_on(pod):
            return None
        if not await self._hooks.before(
            HookPoint.PRE_RUN_POD_SANDBOX, pod, PodSandboxHookResponse, merging.merge_pod_response
        ):
            return None
        merging.change_run_request(run, pod)
        return run.SerializeToString()

    async def after(self, response: bytes | None) -> None:
        if response is not None and self._pod is not None:
            identifier = cri.RunPodSandboxResponse.FromString(response).pod_sandbox_id
            self._checkpoints.pods.put(identifier, self._pod)


class StopPodSandbox(_Call):
    """kubelet stops a pod several times; only one that the runtime has stopped is forgotten."""

    _identifier = ""
    _pod: PodSandboxHookRequest | None = None

    async def _changed(self, request: bytes) -> None:
        self._identifier = cri.PodSandboxRequest.FromString(request).pod_sandbox_id
        if not self._hooks.wants(HookPoint.POST_STOP_POD_SANDBOX):
            return
        pod = await self._interceptor.pod(self._identifier)
        if pod is not None and not self._interceptor.skip_label.is_on(pod):
            self._pod = pod

    async def after(self, response: bytes | None) -> None:
        if self._pod is not None:
            await self._hooks.after(HookPoint.POST_STOP_POD_SANDBOX, self._pod)
        if response is not None:
            self._checkpoints.pods.delete(self._identifier)


class RemovePodSandbox(_Call):
    """No hook, but what is removed is forgotten, even if it was not stopped before."""

    _identifier = ""

    async def _changed(self, request: bytes) -> None:
        self._identifier = cri.PodSandboxRequest.FromString(request).pod_sandbox_id

    async def after(self, response: bytes | None) -> None:
        if response is not None:
            self._checkpoints.pods.delete(self._identifier)


class CreateContainer(_Call):
    """The container is remembered with what hooks have made of it."""

    _container: ContainerResourceHookRequest | None = None

    async def _changed(self, request: bytes) -> bytes | None:
        create = cri.CreateContainerRequest.FromString(request)
        pod = await self._pod(create.pod_sandbox_id)
        if pod is None:
            logger.warning("a container of the unknown sandbox %s is created without hooks", create.pod_sandbox_id)
            return None
        container = self._container = merging.container_hook_request(create, pod)
        if self._interceptor.skip_label.is_on(pod):
            return None
        if not await self._hooks.before(
            HookPoint.PRE_CREATE_CONTAINER, container, ContainerResourceHookResponse, merging.merge_container_response
        ):
            return None
        merging.change_create_request(create, container)
        return create.SerializeToString()

    async def after(self, response: bytes | None) -> None:
        if response is not None and self._container is not None:
            identifier = cri.CreateContainerResponse.FromString(response).container_id
            self._container.container_meta.id = identifier
            self._checkpoints.containers.put(identifier, self._container)

    async def _pod(self, sandbox: str) -> PodSandboxHookRequest | None:
        if self._hooks.wants(HookPoint.PRE_CREATE_CONTAINER):
            return await self._interceptor.pod(sandbox)
        return self._checkpoints.pods.get(sandbox)


class _OfContainer(_Call):
    """What is the same for calls that name a container by its id."""

    _hook_points: tuple[HookPoint, ...] = ()
    _identifier = ""
    _container: ContainerResourceHookRequest | None = None

    async def _load(self, identifier: str) -> ContainerResourceHookRequest | None:
        """The container, if any hook is called for it; ``_container`` is it then, too."""
        self._identifier = identifier
        if not any(self._hooks.wants(point) for point in self._hook_points):
            return None
        container = await self._interceptor.container(identifier)
        if container is None:
            logger.warning("%s of the unknown container %s: no hooks", type(self).__name__, identifier)
        elif not self._interceptor.skip_label.is_on_pod_of(container):
            self._container = container
        return self._container

    async def _call_hooks(self, hook: HookPoint, container: ContainerResourceHookRequest) -> bool:
        return await self._hooks.before(
            hook, container, ContainerResourceHookResponse, merging.merge_container_response
        )


class StartContainer(_OfContainer):
    """The response of a hook before the start is remembered; the request has nothing that it could change."""

    _hook_points = (HookPoint.PRE_START_CONTAINER, HookPoint.POST_START_CONTAINER)

    async def _changed(self, request: bytes) -> None:
        container = await self._load(cri.ContainerRequest.FromString(request).container_id)
        if container is not None:
            await self._call_hooks(HookPoint.PRE_START_CONTAINER, container)

    async def after(self, response: bytes | None) -> None:
        if response is not None and self._container is not None:
            self._checkpoints.containers.put(self._identifier, self._container)
            await self._hooks.after(HookPoint.POST_START_CONTAINER, self._container)


class StopContainer(_OfContainer):
    """Hooks are called also when the runtime has failed, and again when the kubelet tries again."""

    _hook_points = (HookPoint.POST_STOP_CONTAINER,)

    async def _changed(self, request: bytes) -> None:
        await self._load(cri.ContainerRequest.FromString(request).container_id)

    async def after(self, response: bytes | None) -> None:
        if self._container is not None:
            await self._hooks.after(HookPoint.POST_STOP_CONTAINER, self._container)
        if response is not None:
            self._checkpoints.containers.delete(self._identifier)


class RemoveContainer(_Call):
    """No hook; a container that ended by itself was never stopped, and is forgotten here."""

    _identifier = ""

    async def _changed(self, request: bytes) -> None:
        self._identifier = cri.ContainerRequest.FromString(request).container_id

    async def after(self, response: bytes | None) -> None:
        if response is not None:
            self._checkpoints.containers.delete(self._identifier)


class UpdateContainerResources(_OfContainer):
    """The runtime gets all resources, as hooks have left them, not only those that kubelet has changed."""

    _hook_points = (HookPoint.PRE_UPDATE_CONTAINER_RESOURCES,)

    async def _changed(self, request: bytes) -> bytes | None:
        update = cri.UpdateContainerResourcesRequest.FromString(request)
        container = await self._load(update.container_id)
        if container is None:
            # No hook is called, but later ones must see what the container has then.
            self._container = self._checkpoints.containers.get(update.container_id)
            if self._container is not None:
                merging.update_resources(self._container, update.linux)
            return None
        merging.update_resources(container, update.linux)
        if not await self._call_hooks(HookPoint.PRE_UPDATE_CONTAINER_RESOURCES, container):
            return None
        merging.change_update_request(update, container)
        return update.SerializeToString()

    async def after(self, response: bytes | None) -> None:
        containers = self._checkpoints.containers
        if response is not None and self._container is not None:
            partial = containers.is_partial(self._identifier)
            containers.put(self._identifier, self._container, partial=partial)


_METHODS: Final = (
    RunPodSandbox,
    StopPodSandbox,
    RemovePodSandbox,
    CreateContainer,
    StartContainer,
    StopContainer,
    RemoveContainer,
    UpdateContainerResources,
)
_HANDLERS: Final[dict[str, Callable[[CriInterceptor], CallHandler]]] = {
    f"/{version}.RuntimeService/{method.__name__}": method for version in VERSIONS for method in _METHODS
}
