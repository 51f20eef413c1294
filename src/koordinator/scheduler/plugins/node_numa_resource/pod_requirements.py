"""A pod's requirements on CPUs and NUMA nodes, from its labels, annotations and requests."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.codec import DecodeError, decode
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.qos import QoSClass, qos_class_raw
from koordinator.api.quantity import Format
from koordinator.api.resource_names import CPU
from koordinator.model.cpu_allocation.accumulator import ExclusivePolicy
from koordinator.model.cpu_allocation.topology import BindPolicy
from koordinator.model.numa_topology.hints import NUMATopologyPolicy
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.pod_info import PodInfo, resources_key
from koordinator.scheduler.plugins.node_numa_resource.allocation import MILLI, PodAllocation
from koordinator.scheduler.plugins.node_numa_resource.documents import (
    EXCLUSIVE_POLICIES,
    NUMATopologySpec,
    ResourceSpec,
    allocation_of,
)
from koordinator.scheduler.plugins.node_numa_resource.node_topology import NUMA_POLICIES
from koordinator.scheduler.plugins.scheduling_hint import hint_of

NOT_INTEGER: Final = Reason("the requested CPUs must be integer", unresolvable=True)
_BOUND_CLASSES: Final = (QoSClass.LSE, QoSClass.LSR)
_APPLIED: Final = (BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS)
_BIND_POLICIES: Final = {policy.value: policy for policy in BindPolicy}
REQUIRED: Final = "Required"


@dataclass(frozen=True, slots=True)
class PodRequirements:
    """The requirements of a pod. ``amounts`` are its requests by name, without zeros."""

    key: Hashable
    """Equal for pods of equal requirements."""
    amounts: Mapping[str, int]
    formats: Mapping[str, Format]
    """The formats of the requests."""
    binds: bool = False
    """Whether its CPUs are bound, whatever the node's policy is."""
    required: BindPolicy = BindPolicy.NONE
    bind: BindPolicy = BindPolicy.NONE
    """The bind policy to apply: required or preferred."""
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE
    numa: NUMATopologyPolicy = NUMATopologyPolicy.NONE
    single_exclusive: str = ""
    designated: PodAllocation | None = None
    """The only allocation that it may get."""
    problem: Reason | None = None
    """Why it cannot go to any node."""

    @property
    def cpu(self) -> int:
        """In milli-CPU."""
        return self.amounts.get(CPU, 0)

    @property
    def is_plain(self) -> bool:
        """Whether it has no requirements of its own, so that only policies of nodes apply to it."""
        return not (self.binds or self.numa or self.designated or self.problem)

    @property
    def keeps_apart(self) -> bool:
        """Whether it must not share a NUMA node with pods across several if it is on one alone, and vice versa; the
        default for pods with a policy of their own."""
        return self.single_exclusive == REQUIRED or (not self.single_exclusive and bool(self.numa))


class RequirementsCache:
    """Computes the requirements of each pod once. ``default`` is the bind policy of the plugin's arguments; profiles
    have their own."""

    def __init__(self, name: str, default: str) -> None:
        self._name = name
        self._memo = f"{name}/{default}"
        self._default = _BIND_POLICIES.get(default, BindPolicy.NONE)

    def of(self, pod: PodInfo) -> PodRequirements:
        """The requirements of the pod."""
        found: PodRequirements | None = pod.memo.get(self._memo)
        if found is None:
            found = pod.memo[self._memo] = self._read(pod)
        return found

    def _read(self, pod: PodInfo) -> PodRequirements:
        amounts = pod.request.amounts
        annotations = pod.pod.metadata.annotations
        plain = PodRequirements(resources_key(pod), amounts, _formats_of(pod.pod))
        if not amounts:
            return replace(plain, key=None)
        try:
            spec = _document(annotations, annotation_keys.RESOURCE_SPEC, ResourceSpec)
            numa = _document(annotations, annotation_keys.NUMA_TOPOLOGY_SPEC, NUMATopologySpec)
        except DecodeError as error:
            return _refused(plain, Reason(str(error), unresolvable=True))
        policy = NUMA_POLICIES.get(numa.numa_topology_policy)
        if policy is None:
            known = ", ".join(filter(None, NUMA_POLICIES))
            text = f"annotation {annotation_keys.NUMA_TOPOLOGY_SPEC}: numaTopologyPolicy {numa.numa_topology_policy!r} "
            return _refused(plain, Reason(f"{text}is none of {known}", unresolvable=True))
        requirements = replace(plain, numa=policy, single_exclusive=numa.single_numa_node_exclusive)
        requirements = self._with_bound_cpus(requirements, pod.pod, spec)
        requirements = replace(requirements, designated=self._designated(pod))
        return replace(requirements, key=_key(requirements)) if requirements != plain else plain

    def _with_bound_cpus(self, requirements: PodRequirements, pod: Pod, spec: ResourceSpec) -> PodRequirements:
        if qos_class_raw(pod) not in _BOUND_CLASSES or priority_class_with_default(pod) is not PriorityClass.PROD:
            return requirements
        required = self._policy(spec.required_cpu_bind_policy)
        bind = required or self._policy(spec.preferred_cpu_bind_policy or BindPolicy.DEFAULT)
        if bind not in _APPLIED or not requirements.cpu:
            return requirements
        if requirements.cpu % MILLI:
            return _refused(requirements, NOT_INTEGER)
        exclusive = EXCLUSIVE_POLICIES.get(spec.preferred_cpu_exclusive_policy, ExclusivePolicy.NONE)
        return replace(requirements, binds=True, required=required, bind=bind, exclusive=exclusive)

    def _policy(self, text: str) -> BindPolicy:
        """An unknown policy counts as none."""
        policy = _BIND_POLICIES.get(text, BindPolicy.CONSTRAINED_BURST)
        return self._default if policy is BindPolicy.DEFAULT else policy

    def _designated(self, pod: PodInfo) -> PodAllocation | None:
        if annotation_keys.RESOURCE_STATUS not in pod.pod.metadata.annotations:
            return None
        hint = hint_of(pod)
        if hint is None or self._name not in hint.extensions:
            return None
        found = allocation_of(pod.pod.metadata.annotations)
        return found if isinstance(found, PodAllocation) else None


def _formats_of(pod: Pod) -> dict[str, Format]:
    """The formats of the pod's requests: as the first container that requests any has them."""
    formats: dict[str, Format] = {}
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for name, amount in container.resources.requests.items():
            if amount:
                formats.setdefault(name, amount.format)
    return formats


def is_reservation_ignored(pod: Pod) -> bool:
    """Whether the pod takes what is reserved for others."""
    return pod.metadata.labels.get(label_keys.RESERVATION_IGNORED) == "true"


def needs_reservation(pod: Pod) -> bool:
    """Whether the pod must take from a Reservation, or, as a reserve pod, must take over a running pod."""
    required = pod.metadata.labels.get(label_keys.PRE_ALLOCATION_REQUIRED) == "true"
    return required or annotation_keys.RESERVATION_AFFINITY in pod.metadata.annotations


def _refused(requirements: PodRequirements, problem: Reason) -> PodRequirements:
    return replace(requirements, problem=problem, key=(requirements.key, problem))


def _key(requirements: PodRequirements) -> Hashable:
    own = (
        requirements.problem,
        requirements.binds,
        requirements.required,
        requirements.bind,
        requirements.exclusive,
        requirements.numa,
        requirements.single_exclusive,
    )
    return (requirements.key, *own, requirements.designated)


D = TypeVar("D", ResourceSpec, NUMATopologySpec)


def _document(annotations: Mapping[str, str], key: str, expected: type[D]) -> D:
    text = annotations.get(key)
    if text is None:
        return expected()
    try:
        return decode(text, expected)
    except DecodeError as error:
        raise DecodeError(f"annotation {key}: {error}") from error
