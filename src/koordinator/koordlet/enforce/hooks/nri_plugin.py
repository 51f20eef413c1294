"""The NRI plugin: containerd (1.7 and later) and CRI-O call it for every pod and container themselves.

No runtime proxy is needed then, and containers get mounts and devices as well (pkg/koordlet/runtimehooks/nri).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from koordinator.api.cpu_list import format_cpu_list
from koordinator.api.protobuf import nri_pb2 as nri
from koordinator.base.clock import Clock
from koordinator.base.errors import ConfigurationError
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.enforce.hooks.contexts import Change, PodContext, starting_container, starting_pod
from koordinator.koordlet.enforce.hooks.options import NRIOptions
from koordinator.koordlet.enforce.hooks.registry import Stage
from koordinator.koordlet.enforce.hooks.starting import StartingHooks
from koordinator.node import grpc_messages
from koordinator.node.grpc_messages import GrpcError
from koordinator.node.ttrpc import TtrpcConnection, TtrpcError

logger = logging.getLogger(__name__)

_PLUGIN: Final = "/nri.pkg.api.v1alpha1.Plugin/"
_RUNTIME: Final = "nri.pkg.api.v1alpha1.Runtime"
_EVENTS: Final = {
    "RunPodSandbox": nri.RUN_POD_SANDBOX,
    "CreateContainer": nri.CREATE_CONTAINER,
    "UpdateContainer": nri.UPDATE_CONTAINER,
}
"""What is subscribed to, by the name that a configuration has for it."""
_NO_RESOURCES: Final = nri.LinuxResources()


class NRIPlugin:
    """``run`` it beside the loops."""

    def __init__(self, options: NRIOptions, hooks: StartingHooks, clock: Clock) -> None:
        self._options = options
        self._hooks = hooks
        self._clock = clock
        self._said = SaidOnce(logger)
        self.is_connected = False
        """Whether the runtime calls the plugin."""

    async def run(self) -> None:
        """Stay connected until cancelled; what keeps it from that is said once, and tried again after a pause."""
        pause = self._options.first_pause
        while True:
            try:
                await self._serve()
            except* (TtrpcError, GrpcError, OSError, TimeoutError) as errors:
                text = "; ".join(str(error) or "no answer" for error in errors.exceptions)
                with self._said.round():
                    self._said.say(f"the container runtime is not followed by NRI at {self._options.socket}: {text}")
            if self.is_connected:
                pause = self._options.first_pause
            self.is_connected = False
            await self._clock.sleep(pause)
            pause = min(pause * self._options.factor, self._options.longest_pause)

    async def _serve(self) -> None:
        async with asyncio.timeout(self._options.connect_timeout):
            reader, writer = await asyncio.open_unix_connection(self._options.socket)
        connection = TtrpcConnection(reader, writer, self.handle)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(connection.run(), name="NRI")
            request = nri.RegisterPluginRequest(plugin_name=self._options.name, plugin_idx=self._options.index)
            async with asyncio.timeout(self._options.connect_timeout):
                await connection.call(_RUNTIME, "RegisterPlugin", request.SerializeToString())
            self.is_connected = True
            self._said.end()
            logger.info("the container runtime is followed by NRI at %s", self._options.socket)

    async def handle(self, path: str, payload: bytes) -> bytes:
        """Respond to one call of the runtime. GrpcError if a hook fails whose failure policy is to fail."""
        method = path.removeprefix(_PLUGIN)
        if method == "Configure":
            return _configure(nri.ConfigureRequest.FromString(payload)).SerializeToString()
        if method == "Synchronize":
            # What runs already is the reconciler's.
            more = nri.SynchronizeRequest.FromString(payload).more
            return nri.SynchronizeResponse(more=more).SerializeToString()
        if method == "CreateContainer":
            return self._create(nri.CreateContainerRequest.FromString(payload)).SerializeToString()
        if method == "UpdateContainer":
            return self._update(nri.UpdateContainerRequest.FromString(payload)).SerializeToString()
        if method == "RunPodSandbox":
            self._hooks.pod(Stage.PRE_RUN_POD_SANDBOX, _pod(nri.RunPodSandboxRequest.FromString(payload).pod))
            return b""
        if method == "StateChange":
            event = nri.StateChangeEvent.FromString(payload)
            # Before NRI 0.10, the runtime passes it in this way.
            if event.event == nri.RUN_POD_SANDBOX:
                self._hooks.pod(Stage.PRE_RUN_POD_SANDBOX, _pod(event.pod))
            return b""
        if method == "Shutdown":
            return b""
        raise GrpcError(grpc_messages.UNIMPLEMENTED, f"unknown method {path}")

    def _create(self, request: nri.CreateContainerRequest) -> nri.CreateContainerResponse:
        pod = _pod(request.pod)
        cpu = request.container.linux.resources.cpu
        container = starting_container(pod, request.container.name, cpu.quota.value, cpu.period.value)
        change = self._hooks.container(Stage.PRE_CREATE_CONTAINER, pod, container)
        response = nri.CreateContainerResponse()
        if change is not None:
            _adjust(response.adjust, change)
        return response

    def _update(self, request: nri.UpdateContainerRequest) -> nri.UpdateContainerResponse:
        pod = _pod(request.pod)
        cpu = request.linux_resources.cpu
        given = request.container
        container = starting_container(pod, given.name, cpu.quota.value, cpu.period.value, given.id)
        change = self._hooks.container(Stage.PRE_UPDATE_CONTAINER_RESOURCES, pod, container)
        response = nri.UpdateContainerResponse()
        resources = nri.LinuxResources()
        if change is not None:
            _set_resources(resources, change)
        if resources != _NO_RESOURCES:
            update = response.update.add(container_id=request.container.id)
            update.linux.resources.CopyFrom(resources)
        return response


def _configure(request: nri.ConfigureRequest) -> nri.ConfigureResponse:
    """All events, or those of the runtime's configuration of the plugin: YAML with a list ``events``."""
    names: object = tuple(_EVENTS)
    if request.config:
        from koordinator.base.strict_yaml import load_documents

        try:
            documents = load_documents(request.config, "the configuration of the plugin")
        except ConfigurationError as error:
            raise GrpcError(grpc_messages.UNKNOWN, str(error)) from error
        document = documents[0] if len(documents) == 1 else None
        names = document.get("events", names) if isinstance(document, dict) else None
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name in _EVENTS for name in names):
        raise GrpcError(grpc_messages.UNKNOWN, f"events: {names!r}: write a list of {', '.join(_EVENTS)}")
    return nri.ConfigureResponse(events=sum(1 << (_EVENTS[name] - 1) for name in dict.fromkeys(names)))


def _pod(pod: nri.PodSandbox) -> PodContext:
    labels, annotations = dict(pod.labels), dict(pod.annotations)
    return starting_pod(pod.namespace, pod.name, pod.uid, labels, annotations, pod.linux.cgroup_parent)


def _adjust(adjust: nri.ContainerAdjustment, change: Change) -> None:
    resources = nri.LinuxResources()
    _set_resources(resources, change)
    if resources != _NO_RESOURCES:
        adjust.linux.resources.CopyFrom(resources)
    if change.resctrl_group is not None:
        adjust.linux.resources.rdt_class.value = change.resctrl_group
    adjust.env.extend(nri.KeyValue(key=key, value=value) for key, value in change.environment.items())
    for mount in change.mounts:
        adjust.mounts.add(destination=mount.destination, source=mount.source, type="bind", options=["rbind"])
    for device in change.devices:
        added = adjust.linux.devices.add(path=device.path, type="c", major=device.major, minor=device.minor)
        added.file_mode.value = 0o666


def _set_resources(resources: nri.LinuxResources, change: Change) -> None:
    if change.cpuset:
        resources.cpu.cpus = format_cpu_list(change.cpuset)
    if change.cpu_quota is not None:
        resources.cpu.quota.value = change.cpu_quota
    if change.cpu_shares is not None:
        resources.cpu.shares.value = change.cpu_shares
    if change.memory_limit is not None:
        resources.memory.limit.value = change.memory_limit
