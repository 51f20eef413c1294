"""Serves runtime proxies, which call the hooks before they let a pod or a container start.

They find the server by a file in their folder, and call one method for each stage (pkg/koordlet/runtimehooks/
proxyserver, config.go). A response is the request with the changes of the hooks; the message types are those of
apis/runtime/v1alpha1/api.proto. They are loaded with the first request: the library of protocol buffers takes 3 MiB,
which a node without a runtime proxy does not need.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from koordinator.api.codec import decode
from koordinator.api.cpu_list import format_cpu_list
from koordinator.base.errors import KoordinatorError
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.enforce.hooks.contexts import Change, starting_container, starting_pod
from koordinator.koordlet.enforce.hooks.options import HookOptions
from koordinator.koordlet.enforce.hooks.registry import Stage
from koordinator.koordlet.enforce.hooks.starting import StartingHooks
from koordinator.node import grpc_messages
from koordinator.node.grpc_messages import GrpcError
from koordinator.node.grpc_server import GrpcServer, Handler

if TYPE_CHECKING:
    from koordinator.api.protobuf.runtime_hooks_pb2 import LinuxContainerResources

logger = logging.getLogger(__name__)

_SERVICE: Final = "runtime.v1alpha1.RuntimeHookService"
_NAME: Final = "koordlet.json"
_RETRY: Final = 10.0
"""Seconds until it is tried again to serve at the socket."""
_PATIENCE: Final = 30.0
"""Seconds that proxies are not served because it is not known which CPUs pods share."""
_LOOK_AGAIN: Final = 0.2
_OF_PODS: Final = frozenset({Stage.PRE_RUN_POD_SANDBOX, Stage.POST_STOP_POD_SANDBOX})


class RegistrationError(KoordinatorError):
    """The registration cannot be written."""


class HookServer:
    """``run`` it beside the loops."""

    def __init__(self, context: AgentContext, hooks: StartingHooks) -> None:
        self._options = context.options.hooks
        self._hooks = hooks
        self._states = context.states
        self._clock = context.given.clock
        self._server = GrpcServer(handlers(hooks), context.connections)

    @property
    def is_serving(self) -> bool:
        return self._server.is_listening

    async def run(self) -> None:
        if self._options.socket:
            await self._until_pools_are_known()
            await self._server.keep_serving(Path(self._options.socket), "runtime proxies", _RETRY, self._listening)

    def withdraw(self) -> None:
        """Runtime proxies are not to ask here any more, nor where an earlier koordlet has been. One that goes on is
        refused the connection."""
        if not self._options.socket:
            return
        try:
            unregister(self._options)
        except RegistrationError as error:
            logger.warning("the registration at runtime proxies stays: %s", error)

    async def _until_pools_are_known(self) -> None:
        """Until then a container would get no CPUs from the hooks, and could start on those of others.

        A node of which they cannot be found out is served after a while all the same.
        """
        end = self._clock.monotonic() + _PATIENCE
        while self._states.topology is None and self._clock.monotonic() < end:
            await self._clock.sleep(_LOOK_AGAIN)
        if self._states.topology is None:
            logger.warning("runtime proxies are served although it is not known yet which CPUs pods share")

    def _listening(self) -> None:
        stages = self._hooks.hooks.stages
        register(self._options, stages)
        logger.info("runtime proxies are served at %s: %s", self._options.socket, ", ".join(stages))


def handlers(hooks: StartingHooks) -> dict[str, Handler]:
    """One for each method, by its path."""
    return {f"/{_SERVICE}/{stage}Hook": partial(respond, hooks, stage) for stage in Stage}


async def respond(hooks: StartingHooks, stage: Stage, message: bytes) -> bytes:
    """The response to the request of a stage. GrpcError for what is no such request, or if a hook fails whose failures
    count."""
    from google.protobuf.message import DecodeError

    try:
        return (_respond_for_pod if stage in _OF_PODS else _respond_for_container)(hooks, stage, message)
    except DecodeError as error:
        raise GrpcError(grpc_messages.INTERNAL, f"the request is not what {stage} has: {error}") from error


def _respond_for_pod(hooks: StartingHooks, stage: Stage, message: bytes) -> bytes:
    from koordinator.api.protobuf.runtime_hooks_pb2 import PodSandboxHookRequest, PodSandboxHookResponse

    request = PodSandboxHookRequest.FromString(message)
    meta = request.pod_meta
    pod = starting_pod(
        meta.namespace, meta.name, meta.uid, dict(request.labels), dict(request.annotations), request.cgroup_parent
    )
    change = hooks.pod(stage, pod)
    response = PodSandboxHookResponse(
        labels=request.labels, annotations=request.annotations, cgroup_parent=request.cgroup_parent
    )
    if request.HasField("resources"):
        response.resources.CopyFrom(request.resources)
    if change is not None:
        _set_resources(response.resources, change)
    return response.SerializeToString()


def _respond_for_container(hooks: StartingHooks, stage: Stage, message: bytes) -> bytes:
    from koordinator.api.protobuf.runtime_hooks_pb2 import ContainerResourceHookRequest, ContainerResourceHookResponse

    request = ContainerResourceHookRequest.FromString(message)
    meta, labels, annotations = request.pod_meta, dict(request.pod_labels), dict(request.pod_annotations)
    pod = starting_pod(meta.namespace, meta.name, meta.uid, labels, annotations, request.pod_cgroup_parent)
    given, of = request.container_resources, request.container_meta
    container = starting_container(pod, of.name, given.cpu_quota, given.cpu_period, of.id)
    change = hooks.container(stage, pod, container)
    response = ContainerResourceHookResponse(
        container_annotations=request.container_annotations,
        pod_cgroup_parent=request.pod_cgroup_parent,
        container_envs=request.container_envs,
    )
    if request.HasField("container_resources"):
        response.container_resources.CopyFrom(request.container_resources)
    if change is not None:
        _set_resources(response.container_resources, change)
        response.container_envs.update(change.environment)
    return response.SerializeToString()


def _set_resources(resources: LinuxContainerResources, change: Change) -> None:
    if change.cpuset is not None:
        resources.cpuset_cpus = format_cpu_list(change.cpuset)
    if change.cpu_quota is not None:
        resources.cpu_quota = change.cpu_quota
    if change.cpu_shares is not None:
        resources.cpu_shares = change.cpu_shares
    if change.memory_limit is not None:
        resources.memory_limit_in_bytes = change.memory_limit


def register(options: HookOptions, stages: Iterable[Stage]) -> None:
    """Register at runtime proxies for the stages, with the socket. RegistrationError if the file cannot be written."""
    document = {
        "remote-endpoint": options.endpoint,
        "failure-policy": options.failure_policy,
        "runtime-hooks": [stage.value for stage in stages if stage not in options.disabled_stages],
    }
    folder = Path(options.registration_folder)
    # Proxies look at every file whose name ends in json, and must not see half of one.
    fresh = folder / f"{_NAME}.new"
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        fresh.write_text(json.dumps(document, indent="\t"))
        os.replace(fresh, folder / _NAME)
    except OSError as error:
        raise RegistrationError(f"{folder}: {error.strerror}") from error


def unregister(options: HookOptions) -> None:
    """Remove the registration of a socket at which nobody listens; one of another socket, or of another koordlet that
    listens at the same one, stays. RegistrationError if the file cannot be read or removed."""
    file = Path(options.registration_folder) / _NAME
    try:
        document = decode(file.read_bytes(), dict[str, Any])
        if document["remote-endpoint"] == options.endpoint and not _is_served(options.socket):
            file.unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError) as error:
        raise RegistrationError(f"{file} is not JSON with a remote-endpoint") from error
    except OSError as error:
        raise RegistrationError(f"{file}: {error.strerror}") from error


def _is_served(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(path)
        except BlockingIOError:
            return True  # by one who has many to accept
        except OSError:
            return False
    return True
