"""What a hook reads of a pod and of a container, and what it returns; pure.

The same hook is called before a container starts, by the runtime proxy or the container runtime, and in every round
while it runs, by the reconciler. The former know labels, annotations and the cgroup only, the latter knows the pod's
spec, too (pkg/koordlet/runtimehooks/protocol).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError
from koordinator.api.extended_resource_spec import ExtendedResources, ExtendedResourceSpec
from koordinator.api.labels import QOS_CLASS
from koordinator.api.pod import Pod, ResourceList, ResourceRequirements, lasting_containers
from koordinator.api.qos import KubernetesQoS, QoSClass, qos_class_of_name
from koordinator.api.resource_names import BATCH_CPU, BEST_EFFORT, BEST_EFFORT_CPUS, BEST_EFFORT_MEMORIES
from koordinator.base.errors import KoordinatorError
from koordinator.koordlet.enforce.executor.desired_settings import Priority
from koordinator.koordlet.enforce.strategies.snapshot import annotation_or_none, read_annotation
from koordinator.koordlet.pods.cpu_allocation import NOTHING as NO_CPUS
from koordinator.koordlet.pods.cpu_allocation import CPUAllocation, cpu_allocation
from koordinator.koordlet.pods.kubelet_bandwidths import Bandwidth
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.model.pod_grants import Grant
from koordinator.node.cgroup_layout import kubernetes_qos_of
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.kernel_files import PERIOD
from koordinator.node.rdma import DeviceFile

T = TypeVar("T")

_KATA: Final = "kata"
"""The runtime class of pods whose containers are in a virtual machine: their cgroups are not on this node."""
_NAMES: Final = frozenset(BEST_EFFORT)


class HookError(KoordinatorError):
    """An annotation of the pod cannot be understood, or cannot be applied on this node."""


@dataclass(frozen=True, slots=True)
class ContainerContext:
    """One container. ``cgroup`` is its relative folder, empty before it is there; ``is_sandbox`` of the pod's pause."""

    name: str
    cgroup: str = ""
    is_sandbox: bool = False
    id: str = ""
    """As the pod's status has it, or without the runtime's name; of a sandbox, the name of its folder."""
    batch: Grant | None = None
    """Its batch resources; None if it has none."""
    grant: Grant | None = None
    """By the kubelet; None where it is not known, as of a sandbox."""
    bandwidth: Bandwidth | None = None
    """The CPU time that the kubelet gives it; None where it is not known."""


@dataclass(frozen=True, slots=True)
class PodContext:
    """One pod. ``containers`` are those that have a cgroup."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    cgroup: str
    qos: QoSClass
    """As its label says; NONE if it has none."""
    kubernetes_qos: str
    containers: tuple[ContainerContext, ...] = ()
    batch: Mapping[str, Grant] | None = None
    """By container; None if the pod has no batch resources."""
    has_unbounded_container: bool = False
    """Whether a container has no batch resources in a pod that has some."""
    grant: Grant | None = None
    bandwidth: Bandwidth | None = None
    """As of a container, of the whole pod."""
    allocation: CPUAllocation = NO_CPUS

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount that a container gets."""

    source: str
    destination: str


@dataclass(frozen=True, slots=True)
class Change:
    """What a hook wants of a cgroup or of a container that is about to start; what is None stays as it is."""

    reason: str
    priority: Priority = Priority.POLICY
    cpu_shares: int | None = None
    cpu_quota: int | None = None
    """Microseconds in the period of its cgroup, -1 for no limit."""
    cpuset: frozenset[int] | None = None
    """An empty set takes from a starting container what kubelet gives it, and changes nothing of one that runs."""
    memory_limit: int | None = None
    """Bytes, -1 for no limit."""
    bvt: int | None = None
    """Group identity."""
    cpu_idle: int | None = None
    """1: what is in the cgroup runs only where nothing else wants to."""
    net_class: int | None = None
    """net_cls.classid: the class of traffic control that packets of its processes get."""
    oom_score_adj: int | None = None
    """Of each process of the cgroup."""
    resctrl_group: str | None = None
    """In which a starting container's tasks are to be."""
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceFile, ...] = ()
    """Readable and writable for all."""


def starting_pod(
    namespace: str, name: str, uid: str, labels: Mapping[str, str], annotations: Mapping[str, str], cgroup: str
) -> PodContext:
    """A pod that a runtime is about to run. ``cgroup`` is in the form that the runtime gets."""
    batch = _annotated_batch(annotations)
    folder = cgroup.strip("/")
    return PodContext(
        namespace=namespace,
        name=name,
        uid=uid,
        labels=labels,
        annotations=annotations,
        cgroup=folder,
        qos=qos_class_of_name(labels.get(QOS_CLASS, "")),
        kubernetes_qos=kubernetes_qos_of(folder),
        batch=batch or None,
        allocation=cpu_allocation(annotations),
    )


def starting_container(pod: PodContext, name: str, quota: int, period: int, id_: str = "") -> ContainerContext:
    """A container that a runtime is about to create or update, with what the kubelet sets; 0 where it sets nothing.
    ``id_`` is the runtime's, of one that has been created."""
    bandwidth = Bandwidth(quota or NO_LIMIT, period or PERIOD)
    return ContainerContext(name, id=id_, batch=(pod.batch or {}).get(name), bandwidth=bandwidth)


def running_pod(node_pod: NodePod, bandwidths: Mapping[str, Bandwidth]) -> PodContext:
    """A pod that the kubelet lists. ``bandwidths`` are what the kubelet gives its folders."""
    pod = node_pod.pod
    batch = _batch_of_spec(pod)
    containers = tuple(
        ContainerContext(
            name=each.name,
            cgroup=each.cgroup,
            id=each.id,
            batch=batch.get(each.name),
            grant=node_pod.grant.containers.get(each.name),
            bandwidth=bandwidths.get(each.cgroup),
        )
        for each in (node_pod.running if pod.spec.runtime_class_name != _KATA else ())
    )
    if node_pod.sandbox and containers:
        name = node_pod.sandbox.rpartition("/")[2]
        containers = (ContainerContext("", node_pod.sandbox, is_sandbox=True, id=name), *containers)
    return PodContext(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=node_pod.uid,
        labels=pod.metadata.labels,
        annotations=pod.metadata.annotations,
        cgroup=node_pod.cgroup,
        qos=node_pod.qos,
        kubernetes_qos=node_pod.kubernetes_qos,
        containers=containers,
        batch=batch or None,
        has_unbounded_container=any(container.name not in batch for container in pod.spec.containers),
        grant=node_pod.grant.pod,
        bandwidth=bandwidths.get(node_pod.cgroup),
        allocation=node_pod.allocation,
    )


def allocation(pod: PodContext) -> CPUAllocation:
    """What the scheduler has given to the pod; HookError if the annotation cannot be read."""
    if pod.allocation.problem:
        raise HookError(pod.allocation.problem)
    return pod.allocation


def annotation(pod: PodContext, key: str, kind: type[T]) -> T | None:
    """The JSON of an annotation, None if there is none; HookError if it is not what it should be."""
    try:
        return read_annotation(pod.annotations, key, kind)
    except DecodeError as error:
        raise HookError(str(error)) from error


def is_best_effort(pod: PodContext) -> bool:
    """Whether the pod is below the folder of BestEffort pods."""
    return pod.kubernetes_qos == KubernetesQoS.BEST_EFFORT


def _batch_of_spec(pod: Pod) -> dict[str, Grant]:
    """Of the spec, else of the annotation; of init containers, sidecars count alone, since the others run before."""
    found = {
        container.name: _amounts(container.resources)
        for container in lasting_containers(pod)
        if _NAMES & (container.resources.requests.keys() | container.resources.limits.keys())
    }
    return found or _annotated_batch(pod.metadata.annotations)


def _annotated_batch(annotations: Mapping[str, str]) -> dict[str, Grant]:
    """Of the annotation that is written at admission; nothing where it cannot be read, as in the original."""
    found = annotation_or_none(annotations, annotation_keys.EXTENDED_RESOURCE_SPEC, ExtendedResourceSpec)
    return {} if found is None else {name: _amounts(given) for name, given in found.containers.items()}


def _amounts(given: ResourceRequirements | ExtendedResources) -> Grant:
    """A free pod is limited as a batch pod is, and has the least shares: batch pods run first."""
    return Grant(
        cpu_request=_sum(given.requests, BATCH_CPU),
        cpu_limit=_sum(given.limits, *BEST_EFFORT_CPUS) or None,
        memory_limit=_sum(given.limits, *BEST_EFFORT_MEMORIES) or None,
    )


def _sum(amounts: ResourceList, *names: str) -> int:
    """batch-cpu and free-cpu count milli-CPU. What is below 0 is as good as nothing."""
    return sum([max(amounts[name].value, 0) for name in names if name in amounts])
