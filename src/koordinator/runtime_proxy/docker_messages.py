"""Docker's HTTP API as far as hooks change it: bodies in and out. Pure functions on JSON documents.

A body is changed key by key, so that what is newer than this file is kept.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.protobuf.runtime_hooks_pb2 import (
    ContainerResourceHookRequest,
    LinuxContainerResources,
    PodSandboxHookRequest,
    PodSandboxHookResponse,
)
from koordinator.runtime_proxy import merging

TYPE_LABEL: Final = "io.kubernetes.docker.type"
SANDBOX_TYPE: Final = "podsandbox"
SANDBOX_ID_LABEL: Final = "io.kubernetes.sandbox.id"
_ANNOTATION: Final = "annotation."
_SYSTEMD: Final = "systemd"

_UPDATABLE: Final = {
    "CpuPeriod": "cpu_period",
    "CpuQuota": "cpu_quota",
    "CpuShares": "cpu_shares",
    "Memory": "memory_limit_in_bytes",
    "MemorySwap": "memory_swap_limit_in_bytes",
    "CpusetCpus": "cpuset_cpus",
    "CpusetMems": "cpuset_mems",
}
"""Docker's keys, and the fields of the hooks' messages."""
_RESOURCES: Final = {**_UPDATABLE, "OomScoreAdj": "oom_score_adj"}


@dataclass(frozen=True, slots=True)
class ContainerName:
    """What kubelet puts into the name of a container."""

    container: str
    pod: str
    namespace: str
    uid: str
    attempt: int


def parse_name(name: str) -> ContainerName | None:
    """The parts of ``k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT``; None for the names of other people's containers."""
    parts = name.removeprefix("/").split("_")
    if len(parts) != 6 or parts[0] != "k8s" or not parts[5].isdigit() or not parts[5].isascii():
        return None
    _, container, pod, namespace, uid, attempt = parts
    return ContainerName(container, pod, namespace, uid, min(int(attempt), 0xFFFFFFFF))


def split_labels(labels: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Docker's labels as labels and annotations: those of the second kind have a prefix."""
    annotations = {key.removeprefix(_ANNOTATION): value for key, value in labels.items() if key.startswith(_ANNOTATION)}
    return {key: value for key, value in labels.items() if not key.startswith(_ANNOTATION)}, annotations


def full_parent(parent: str, driver: str) -> str:
    """The path of a parent cgroup: with systemd, docker is given the last slice, whose name says those above it."""
    if driver != _SYSTEMD or not parent or "/" in parent:
        return parent
    parts = parent.removesuffix(".slice").split("-")
    slices = ["-".join(parts[: length + 1]) + ".slice" for length in range(len(parts))]
    return "/" + "/".join(slices)


def docker_parent(path: str, driver: str) -> str:
    """What docker takes as parent cgroup, for a path."""
    return posixpath.basename(path) if driver == _SYSTEMD else path


def resources_of(config: Mapping[str, Any]) -> LinuxContainerResources:
    """The resources of a HostConfig, or of the body of an update. ValueError or TypeError if a value is none."""
    given = {field: config[key] for key, field in _RESOURCES.items() if config.get(key)}
    return LinuxContainerResources(**given)


def environment_of(entries: list[str]) -> dict[str, str]:
    """Variables by name; entries without a value are not variables yet."""
    return {key: value for key, equals, value in (entry.partition("=") for entry in entries) if equals}


def pod_of(
    name: ContainerName, labels: Mapping[str, str], host: Mapping[str, Any], driver: str
) -> PodSandboxHookRequest:
    """What hook servers get of a sandbox."""
    own, annotations = split_labels(labels)
    pod = PodSandboxHookRequest(
        runtime_handler="docker",
        labels=own,
        annotations=annotations,
        cgroup_parent=full_parent(host.get("CgroupParent") or "", driver),
        resources=resources_of(host),
    )
    pod.pod_meta.name, pod.pod_meta.namespace, pod.pod_meta.uid = name.pod, name.namespace, name.uid
    pod.pod_meta.attempt = name.attempt
    return pod


def container_of(
    name: ContainerName,
    pod: PodSandboxHookRequest,
    labels: Mapping[str, str],
    host: Mapping[str, Any],
    environment: list[str],
) -> ContainerResourceHookRequest:
    """What hook servers get of a container in a pod."""
    container = merging.of_pod(pod)
    container.container_meta.name, container.container_meta.attempt = name.container, name.attempt
    container.container_annotations.update(split_labels(labels)[1])
    container.container_resources.CopyFrom(resources_of(host))
    container.container_envs.update(environment_of(environment))
    return container


def merge_pod_response(pod: PodSandboxHookRequest, response: PodSandboxHookResponse) -> None:
    """Merge a response for a sandbox: its resources count, labels and annotations do not."""
    if response.cgroup_parent:
        pod.cgroup_parent = response.cgroup_parent
    if response.HasField("resources"):
        merging.merge_response_resources(pod.resources, response.resources)


def change_resources(config: dict[str, Any], resources: LinuxContainerResources, *, update: bool) -> None:
    """Put resources into a HostConfig, or into the body of an update, which cannot change the OOM score."""
    for key, field in (_UPDATABLE if update else _RESOURCES).items():
        value = getattr(resources, field)
        if value != (config.get(key) or type(value)()):
            config[key] = value


def change_parent(config: dict[str, Any], path: str, driver: str) -> None:
    """Put a parent cgroup into a HostConfig; one that docker already has stays as it is written."""
    if path and path != full_parent(config.get("CgroupParent") or "", driver):
        config["CgroupParent"] = docker_parent(path, driver)


def change_environment(body: dict[str, Any], wanted: Mapping[str, str]) -> None:
    """Variables that are as they were keep their place; new ones follow in the order of their names."""
    entries: list[str] = body.get("Env") or []
    before = environment_of(entries)
    if before == dict(wanted):
        return
    kept = []
    for entry in entries:
        key, equals, _ = entry.partition("=")
        if not equals:
            kept.append(entry)
        elif key in wanted:
            kept.append(f"{key}={wanted[key]}")
    body["Env"] = [*dict.fromkeys(kept), *(f"{key}={wanted[key]}" for key in sorted(wanted.keys() - before.keys()))]
