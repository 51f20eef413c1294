"""What runtime proxies send and get, as protocol buffers: a response is the request with the changes of the hooks.

Loaded with the first request: the library of protocol buffers takes 3 MiB, which a node without a runtime proxy does
not need. The message types are those of apis/runtime/v1alpha1/api.proto.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from koordinator.api.cpu_list import format_cpu_list
from koordinator.api.protobuf.runtime_hooks_pb2 import (
    ContainerResourceHookRequest,
    ContainerResourceHookResponse,
    LinuxContainerResources,
    PodSandboxHookRequest,
    PodSandboxHookResponse,
)
from koordinator.koordlet.enforce.hooks.contexts import Change, starting_container, starting_pod
from koordinator.koordlet.enforce.hooks.registry import Stage
from koordinator.koordlet.enforce.hooks.starting import StartingHooks
from koordinator.node import grpc_messages
from koordinator.node.grpc_messages import GrpcError

_OF_PODS: Final = frozenset({Stage.PRE_RUN_POD_SANDBOX, Stage.POST_STOP_POD_SANDBOX})


def respond(hooks: StartingHooks, stage: Stage, message: bytes) -> bytes:
    """The response to the request of a stage. GrpcError for what is no such request, or if a hook fails whose failures
    count."""
    try:
        return (_respond_for_pod if stage in _OF_PODS else _respond_for_container)(hooks, stage, message)
    except DecodeError as error:
        raise GrpcError(grpc_messages.INTERNAL, f"the request is not what {stage} has: {error}") from error


def _respond_for_pod(hooks: StartingHooks, stage: Stage, message: bytes) -> bytes:
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
