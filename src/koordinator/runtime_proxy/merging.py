"""What the response of a hook changes: in the checkpoint of a pod or container, and in the request to the runtime.

Pure functions on messages. A request is changed in place and field by field, so that what we do not know of it is kept.
"""

from __future__ import annotations

from koordinator.api.protobuf.cri_pb2 import (
    CreateContainerRequest,
    KeyValue,
    RunPodSandboxRequest,
    UpdateContainerResourcesRequest,
)
from koordinator.api.protobuf.runtime_hooks_pb2 import (
    ContainerResourceHookRequest,
    ContainerResourceHookResponse,
    LinuxContainerResources,
    PodSandboxHookRequest,
    PodSandboxHookResponse,
)

_LEAST_OOM_SCORE_ADJ, _MOST_OOM_SCORE_ADJ = -1000, 1000


def pod_hook_request(request: RunPodSandboxRequest) -> PodSandboxHookRequest:
    """What hook servers get of a pod that is about to run."""
    config = request.config
    pod = PodSandboxHookRequest(
        pod_meta=config.metadata,
        runtime_handler=request.runtime_handler,
        labels=config.labels,
        annotations=config.annotations,
        cgroup_parent=config.linux.cgroup_parent,
    )
    if config.linux.HasField("overhead"):
        pod.overhead.CopyFrom(config.linux.overhead)
    if config.linux.HasField("resources"):
        pod.resources.CopyFrom(config.linux.resources)
    return pod


def container_hook_request(request: CreateContainerRequest, pod: PodSandboxHookRequest) -> ContainerResourceHookRequest:
    """What hook servers get of a container that is about to be created in a pod."""
    config = request.config
    container = of_pod(pod)
    container.container_meta.name = config.metadata.name
    container.container_meta.attempt = config.metadata.attempt
    container.container_annotations.update(config.annotations)
    # Present even where the request has none: a server may set what kubelet has not.
    container.container_resources.CopyFrom(config.linux.resources)
    container.pod_cgroup_parent = request.sandbox_config.linux.cgroup_parent
    container.container_envs.update({env.key: _text(env) for env in config.envs})
    return container


def of_pod(pod: PodSandboxHookRequest) -> ContainerResourceHookRequest:
    """What hook servers get of the pod of any of its containers."""
    container = ContainerResourceHookRequest(
        pod_meta=pod.pod_meta,
        pod_annotations=pod.annotations,
        pod_labels=pod.labels,
        pod_cgroup_parent=pod.cgroup_parent,
    )
    if pod.HasField("resources"):
        container.pod_resources.CopyFrom(pod.resources)
    return container


def update_resources(container: ContainerResourceHookRequest, update: LinuxContainerResources) -> None:
    """Take over what an UpdateContainerResources request changes; 0 and "" change nothing, as in the runtime.

    ``oom_score_adj`` stays: it cannot be changed for a container that runs, and 0 may mean "not specified".
    """
    if not container.HasField("container_resources"):
        return
    stored = container.container_resources
    _merge_amounts(stored, update)
    if update.cpuset_cpus:
        stored.cpuset_cpus = update.cpuset_cpus
    if update.cpuset_mems:
        stored.cpuset_mems = update.cpuset_mems


def merge_pod_response(pod: PodSandboxHookRequest, response: PodSandboxHookResponse) -> None:
    """Merge a response for a pod; its ``resources`` are ignored, as by the original."""
    pod.labels.update(response.labels)
    pod.annotations.update(response.annotations)
    if response.cgroup_parent:
        pod.cgroup_parent = response.cgroup_parent


def merge_container_response(container: ContainerResourceHookRequest, response: ContainerResourceHookResponse) -> None:
    """Merge a response for a container.

    Of ``container_resources``, cpusets and a valid ``oom_score_adj`` are taken as they are, 0 and "" included: servers
    echo what they do not want to change. A response without them changes no resources.
    """
    container.container_annotations.update(response.container_annotations)
    if response.HasField("container_resources") and container.HasField("container_resources"):
        merge_response_resources(container.container_resources, response.container_resources)
    if response.pod_cgroup_parent:
        container.pod_cgroup_parent = response.pod_cgroup_parent
    if response.container_envs:
        container.container_envs.clear()
        container.container_envs.update(response.container_envs)


def change_run_request(request: RunPodSandboxRequest, pod: PodSandboxHookRequest) -> None:
    """Put what hooks have made of a pod into the request that runs it."""
    request.config.labels.update(pod.labels)
    request.config.annotations.update(pod.annotations)
    if pod.cgroup_parent:
        request.config.linux.cgroup_parent = pod.cgroup_parent


def change_create_request(request: CreateContainerRequest, container: ContainerResourceHookRequest) -> None:
    """Put what hooks have made of a container into the request that creates it."""
    request.config.annotations.update(container.container_annotations)
    _set_resources(request.config.linux.resources, container.container_resources)
    if container.pod_cgroup_parent:
        request.sandbox_config.linux.cgroup_parent = container.pod_cgroup_parent
    _set_environment(request, dict(container.container_envs))


def change_update_request(request: UpdateContainerResourcesRequest, container: ContainerResourceHookRequest) -> None:
    """Put all resources of a container, as hooks have left them, into the request that updates some."""
    request.annotations.update(container.container_annotations)
    if container.HasField("container_resources"):
        _set_resources(request.linux, container.container_resources)


def _merge_amounts(stored: LinuxContainerResources, given: LinuxContainerResources) -> None:
    if given.cpu_period > 0:
        stored.cpu_period = given.cpu_period
    if given.cpu_quota != 0:  # -1 is no limit
        stored.cpu_quota = given.cpu_quota
    if given.cpu_shares > 0:
        stored.cpu_shares = given.cpu_shares
    if given.memory_limit_in_bytes > 0:
        stored.memory_limit_in_bytes = given.memory_limit_in_bytes
    if given.memory_swap_limit_in_bytes > 0:
        stored.memory_swap_limit_in_bytes = given.memory_swap_limit_in_bytes
    stored.unified.update(given.unified)


def merge_response_resources(stored: LinuxContainerResources, response: LinuxContainerResources) -> None:
    """Merge the resources of a response."""
    _merge_amounts(stored, response)
    if _LEAST_OOM_SCORE_ADJ <= response.oom_score_adj <= _MOST_OOM_SCORE_ADJ:
        stored.oom_score_adj = response.oom_score_adj
    stored.cpuset_cpus = response.cpuset_cpus
    stored.cpuset_mems = response.cpuset_mems


def _set_resources(target: LinuxContainerResources, source: LinuxContainerResources) -> None:
    """All but the limits of huge pages, which no hook changes."""
    target.cpu_period = source.cpu_period
    target.cpu_quota = source.cpu_quota
    target.cpu_shares = source.cpu_shares
    target.memory_limit_in_bytes = source.memory_limit_in_bytes
    target.memory_swap_limit_in_bytes = source.memory_swap_limit_in_bytes
    target.oom_score_adj = source.oom_score_adj
    target.cpuset_cpus = source.cpuset_cpus
    target.cpuset_mems = source.cpuset_mems
    target.unified.clear()
    target.unified.update(source.unified)


def _set_environment(request: CreateContainerRequest, wanted: dict[str, str]) -> None:
    """Variables that are as they were keep their place and their bytes; new ones follow in the order of their names."""
    before = {env.key: _text(env) for env in request.config.envs}
    if wanted == before:
        return
    kept: list[KeyValue] = []
    changed: set[str] = set()
    for env in request.config.envs:
        value = wanted.get(env.key)
        if value == before[env.key]:
            kept.append(env)
        elif value is not None and env.key not in changed:
            changed.add(env.key)
            kept.append(KeyValue(key=env.key, value=value.encode()))
    kept += [KeyValue(key=key, value=wanted[key].encode()) for key in sorted(wanted.keys() - before.keys())]
    del request.config.envs[:]
    request.config.envs.extend(kept)


def _text(env: KeyValue) -> str:
    return env.value.decode(errors="replace")
