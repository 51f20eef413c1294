"""A pod's requirements on CPUs and NUMA nodes, from its labels, annotations and requests, and the annotations that
the plugin reads and writes."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final, TypeVar

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError, decode, decode_or, encode
from koordinator.api.cpu_list import HIGHEST_NUMA_NODE, format_cpu_list, parse_cpu_list
from koordinator.api.meta import WireStruct
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass, priority_class_with_default
from koordinator.api.qos import QoSClass, qos_class_raw
from koordinator.api.quantity import Format, Quantity
from koordinator.api.resource_names import CPU
from koordinator.api.resource_status import ResourceStatus
from koordinator.model.cpu_allocation.accumulator import ExclusivePolicy
from koordinator.model.cpu_allocation.topology import BindPolicy, cpu_mask, cpus_of
from koordinator.model.numa_topology.hints import NUMATopologyPolicy
from koordinator.scheduler.engine.allocations import Unknown, unusable_annotation
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.pod_info import PodInfo, resources_key
from koordinator.scheduler.plugins.node_numa_resource.allocation import MILLI, PodAllocation
from koordinator.scheduler.plugins.node_numa_resource.node_topology import NUMA_POLICIES
from koordinator.scheduler.plugins.scheduling_hint import Hint, hint_of


class ResourceSpec(WireStruct):
    """``scheduling.koordinator.sh/resource-spec``: how the CPUs of a pod are bound."""

    required_cpu_bind_policy: str = msgspec.field(default="", name="requiredCPUBindPolicy")
    preferred_cpu_bind_policy: str = msgspec.field(default="", name="preferredCPUBindPolicy")
    preferred_cpu_exclusive_policy: str = msgspec.field(default="", name="preferredCPUExclusivePolicy")


class NUMATopologySpec(WireStruct):
    """``scheduling.koordinator.sh/numa-topology-spec``: how strictly a pod is aligned."""

    numa_topology_policy: str = msgspec.field(default="", name="numaTopologyPolicy")
    single_numa_node_exclusive: str = msgspec.field(default="", name="singleNUMANodeExclusive")


EXCLUSIVE_POLICIES: Final = {policy.value: policy for policy in ExclusivePolicy}
"""By name; any other name, ``None`` among them, is no exclusive policy."""


_ALLOWED: Final = (
    'a list of CPUs and amounts by NUMA node, as in {"cpuset":"0-3","numaNodeResources":[{"node":0,"resources":'
    '{"cpu":"4"}}]}'
)


def allocation_of(annotations: Mapping[str, str]) -> PodAllocation | Unknown | None:
    """The allocation of a pod with these annotations; None if it has none, Unknown if it cannot be decoded. CPUs whose
    exclusive policy cannot be decoded are the pod's all the same."""
    text = annotations.get(annotation_keys.RESOURCE_STATUS)
    if text is None:
        return None
    try:
        status = decode(text, ResourceStatus)
        cpus = cpu_mask(parse_cpu_list(status.cpuset))
    except (DecodeError, ValueError) as error:
        return Unknown(unusable_annotation(annotation_keys.RESOURCE_STATUS, text, str(error), _ALLOWED))
    spec = decode_or(annotations.get(annotation_keys.RESOURCE_SPEC), ResourceSpec, ResourceSpec())
    amounts: dict[int, dict[str, Quantity]] = {}
    for each in status.numa_node_resources:
        if not 0 <= each.node <= HIGHEST_NUMA_NODE:
            why = f"there is no NUMA node {each.node}"
            return Unknown(unusable_annotation(annotation_keys.RESOURCE_STATUS, text, why, _ALLOWED))
        # A NUMA node that occurs twice has the sum of both.
        of_node = amounts.setdefault(each.node, {})
        for name, amount in each.resources.items():
            known = of_node.get(name)
            taken = max(amount.nanos, 0) + (known.nanos if known is not None else 0)
            of_node[name] = Quantity(taken, (known or amount).format)
    if not cpus and not amounts:
        return None
    exclusive = EXCLUSIVE_POLICIES.get(spec.preferred_cpu_exclusive_policy, ExclusivePolicy.NONE)
    return PodAllocation.of(cpus, amounts, exclusive)


def status_text(allocation: PodAllocation) -> str:
    """The annotation's value for an allocation."""
    document: dict[str, object] = {}
    if allocation.cpus:
        document["cpuset"] = format_cpu_list(cpus_of(allocation.cpus))
    if allocation.resources:
        document["numaNodeResources"] = [
            {"node": numa_node, "resources": {name: str(amount) for name, amount in amounts}}
            for numa_node, amounts in allocation.resources
        ]
    return json.dumps(document, separators=(",", ":"))


def completed_spec(text: str | None, policy: str, *, required: bool) -> str | None:
    """The annotation ``resource-spec`` with the bind policy that was applied, so that the node's agent can read it;
    None if it has it already."""
    spec = decode(text, ResourceSpec) if text is not None else ResourceSpec()
    wanted, preferred = spec.required_cpu_bind_policy, spec.preferred_cpu_bind_policy
    if required and wanted in ("", "Default"):
        wanted = policy
    if preferred == "Default" or (not wanted and not preferred):
        preferred = policy
    completed = msgspec.structs.replace(spec, required_cpu_bind_policy=wanted, preferred_cpu_bind_policy=preferred)
    return encode(completed).decode() if completed != spec else None


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


_OWN: Final = attrgetter(
    *("problem", "binds", "required", "bind", "exclusive", "numa", "single_exclusive", "designated"),
)
"""What a pod requires beyond amounts."""


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
        hint = hint_of(pod) if annotation_keys.RESOURCE_STATUS in annotations else None
        if isinstance(hint, str):
            return _refused(plain, Reason(hint, unresolvable=True))
        policy = NUMA_POLICIES.get(numa.numa_topology_policy)
        if policy is None:
            known = ", ".join(filter(None, NUMA_POLICIES))
            text = f"annotation {annotation_keys.NUMA_TOPOLOGY_SPEC}: numaTopologyPolicy {numa.numa_topology_policy!r} "
            return _refused(plain, Reason(f"{text}is none of {known}", unresolvable=True))
        requirements = replace(plain, numa=policy, single_exclusive=numa.single_numa_node_exclusive)
        requirements = self._with_bound_cpus(requirements, pod.pod, spec)
        requirements = replace(requirements, designated=self._designated(pod.pod, hint))
        return replace(requirements, key=(requirements.key, _OWN(requirements))) if requirements != plain else plain

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

    def _designated(self, pod: Pod, hint: Hint | None) -> PodAllocation | None:
        if hint is None or self._name not in hint.extensions:
            return None
        found = allocation_of(pod.metadata.annotations)
        return found if isinstance(found, PodAllocation) else None


def _formats_of(pod: Pod) -> dict[str, Format]:
    """The formats of the pod's requests: as the first container that requests any has them."""
    formats: dict[str, Format] = {}
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for name, amount in container.resources.requests.items():
            if amount:
                formats.setdefault(name, amount.format)
    return formats


def _refused(requirements: PodRequirements, problem: Reason) -> PodRequirements:
    return replace(requirements, problem=problem, key=(requirements.key, problem))


D = TypeVar("D", ResourceSpec, NUMATopologySpec)


def _document(annotations: Mapping[str, str], key: str, expected: type[D]) -> D:
    text = annotations.get(key)
    if text is None:
        return expected()
    try:
        return decode(text, expected)
    except DecodeError as error:
        raise DecodeError(f"annotation {key}: {error}") from error
