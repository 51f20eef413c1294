"""What the strategies decide on: the node, its policy, its pods with what they use, and what the kernel shows now.

Nothing here reads anything. A figure that is not known is None, and then what depends on it stays as it is: missing
data never recovers anything and never takes anything away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError, decode
from koordinator.api.cpu_list import parse_cpu_list
from koordinator.api.host_application import KUBEPODS_BEST_EFFORT, HostApplicationSpec
from koordinator.api.meta import ObjectReference
from koordinator.api.node import Node
from koordinator.api.node_reservation import NodeReservation, SystemQoSResource
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.api.qos import QoSClass
from koordinator.api.resource_qos import ResourceQoSStrategy
from koordinator.api.struct_fields import struct_fields
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.pods.node_pod import NodePod, Picture
from koordinator.node.cpu_topology import CPUTopology

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

STATIC: Final = "static"
"""The policy of kubelet's CPU manager under which it gives CPUs to containers."""


class ContainerUsage(NamedTuple):
    """Cores over the last samples, and the share of its periods in which the container was throttled."""

    cpu: float | None = None
    throttled: float | None = None


class PodUsage(NamedTuple):
    """A pod and what it uses: cores, and bytes without page cache."""

    pod: NodePod
    cpu: float | None = None
    memory: float | None = None
    containers: Mapping[str, ContainerUsage] = MappingProxyType({})
    """By the container's ID."""


@dataclass(frozen=True)
class BestEffortFolders(Picture):
    """Of BestEffort pods, relative."""

    root: str
    pods: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    """Below the containers: those that have CPUs of their own by the kernel's rules, which keeps a parent from having
    less than its children (version 1)."""

    def each(self, above: T, below: T) -> dict[str, T]:
        """``above`` for the root and the pods, ``below`` for the containers and what is in them."""
        return dict.fromkeys((self.root, *self.pods), above) | dict.fromkeys((*self.containers, *self.inner), below)


@dataclass(frozen=True, slots=True)
class BestEffortCgroups:
    """What the kernel shows of the folders of BestEffort pods."""

    folders: BestEffortFolders
    quota: int | None = None
    """Microseconds in a period of the root, -1 for none."""
    cpuset: frozenset[int] | None = None
    """The CPUs that the root may use, its own or its parent's; None where the kernel shows none."""
    available: frozenset[int] | None = None
    """Those that the folder of all pods leaves it. To any other the kernel grants nothing: a cgroup of version 2 that
    has none of its parent's CPUs may use them all."""


@dataclass(frozen=True)
class Snapshot:
    """One moment. ``node_cpu`` in cores, ``node_memory`` in bytes, without the pool of ``huge_pages``."""

    node: Node | None = None
    policy: NodeSLOSpec | None = None
    """With the agent's defaults, invalid values replaced by the last good ones."""
    pods: tuple[PodUsage, ...] = ()
    node_cpu: float | None = None
    node_memory: float | None = None
    huge_pages: float = 0.0
    host_applications: Mapping[str, float] = field(default_factory=dict)
    """Cores by name, of those that were measured."""
    topology: CPUTopology | None = None
    best_effort: BestEffortCgroups | None = None
    cpu_manager_policy: str = ""
    """Of kubelet; empty where it is not known."""
    kept_cpus: frozenset[int] = frozenset()
    """CPUs that pods keep off."""
    kubelet_cpus: frozenset[int] = frozenset()
    """CPUs that kubelet's static CPU manager has given to pods: only the containers of other pods keep off these."""

    @property
    def resource_qos(self) -> ResourceQoSStrategy | None:
        """What the policy says of classes of pods."""
        return self.policy.resource_qos_strategy if self.policy is not None else None

    @cached_property
    def cpus(self) -> frozenset[int]:
        """Every CPU that is online."""
        return frozenset([cpu.cpu for cpu in self.topology.cpus]) if self.topology else frozenset()

    @cached_property
    def allowed_cpus(self) -> frozenset[int]:
        """Those that pods without CPUs of their own may use, best-effort pods among them."""
        available = self.best_effort.available if self.best_effort else None
        return (self.cpus if available is None else self.cpus & available) - self.kept_cpus


@dataclass(frozen=True, slots=True)
class Problem:
    """A setting that cannot be followed: ``text`` names the field, its value and what is allowed."""

    text: str
    pod: ObjectReference | None = None
    """Whose annotation it is; None for the NodeSLO."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The strategy's settings. ``settings`` None: a figure is missing, and the previous settings stay in force."""

    settings: tuple[DesiredSetting, ...] | None
    reason: str
    figures: Mapping[str, float] = field(default_factory=dict)
    """The inputs of the decision, for metrics and for ``/enforcement``."""
    problems: tuple[Problem, ...] = ()
    """The texts of the events for the authors of the settings."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """``decide`` is pure and runs every ``interval`` seconds; its settings are those of the owner ``name``."""

    name: str
    interval: float
    decide: Callable[[Snapshot], Decision]
    reads_best_effort: bool = False
    """Whether it needs ``Snapshot.best_effort``, for which the folders of all BestEffort pods are gone over."""


def pod_reference(namespace: str, name: str, uid: str) -> ObjectReference:
    """For events about a pod."""
    return ObjectReference("v1", "Pod", namespace, name, uid)


def capacity_milli(node: Node) -> int:
    """Milli-CPU that the node has; 0 where it does not say."""
    capacity = node.status.capacity.get("cpu")
    return 0 if capacity is None else -(-capacity.nanos // 10**6)


def node_reservation(node: Node) -> NodeReservation:
    """What the node keeps for programs outside Kubernetes; nothing if the annotation cannot be read."""
    found = annotation_or_none(node.metadata.annotations, annotation_keys.NODE_RESERVATION, NodeReservation)
    return found or NodeReservation()


def system_cpus(node: Node) -> frozenset[int]:
    """The CPUs of the system's own processes; none if the annotation cannot be read."""
    system = annotation_or_none(node.metadata.annotations, annotation_keys.SYSTEM_QOS_RESOURCE, SystemQoSResource)
    return cpu_list_or_none(system.cpuset) if system is not None else frozenset()


def reserved_cpus(node: Node | None) -> frozenset[int]:
    """CPUs that pods keep off as the annotations name them: the node's reservation, and the exclusive ones of the
    system. An amount that is reserved is a set of CPUs only by the topology of the node."""
    if node is None:
        return frozenset()
    system = annotation_or_none(node.metadata.annotations, annotation_keys.SYSTEM_QOS_RESOURCE, SystemQoSResource)
    exclusive = system.cpuset if system is not None and system.cpuset_exclusive is not False else ""
    return cpu_list_or_none(node_reservation(node).reserved_cpus) | cpu_list_or_none(exclusive)


def cpu_list_or_none(text: str) -> frozenset[int]:
    """The CPUs of a list; none where the text is not a list, which the admission webhook rejects for its author."""
    try:
        return parse_cpu_list(text)
    except ValueError:
        return frozenset()


def is_suppressed_host_application(application: HostApplicationSpec) -> bool:
    """Whether a program beside Kubernetes is held down together with BestEffort pods."""
    path = application.cgroup_path
    return application.qos == QoSClass.BE and path is not None and path.base == KUBEPODS_BEST_EFFORT


def read_annotation(given: Mapping[str, str], key: str, kind: type[T]) -> T | None:
    """The JSON of an annotation; None where there is none. DecodeError, which names it, if it is not what it should
    be."""
    text = given.get(key)
    if not text:
        return None
    try:
        return decode(text, kind)
    except DecodeError as error:
        raise DecodeError(f"metadata.annotations[{key}]: {error}") from error


def overlaid(base: S, given: msgspec.Struct) -> S:
    """``base`` with what a pod's own annotation sets of its fields."""
    names = [field.name for field in struct_fields(type(base))]
    changes = {name: value for name in names if (value := getattr(given, name, None)) not in (None, "")}
    return msgspec.structs.replace(base, **changes)


def annotation_or_none(given: Mapping[str, str], key: str, kind: type[T]) -> T | None:
    """The same for those of which a bad one counts as none."""
    try:
        return read_annotation(given, key, kind)
    except DecodeError:
        return None
