"""The annotations that the plugin reads and writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError, decode
from koordinator.api.cpu_list import HIGHEST_NUMA_NODE, format_cpu_list, parse_cpu_list
from koordinator.api.meta import WireStruct
from koordinator.api.quantity import Quantity
from koordinator.api.resource_status import ResourceStatus
from koordinator.model.cpu_allocation.accumulator import ExclusivePolicy
from koordinator.model.cpu_allocation.topology import cpu_mask, cpus_of
from koordinator.scheduler.engine.allocations import Unknown, unusable_annotation
from koordinator.scheduler.plugins.node_numa_resource.allocation import PodAllocation


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
    try:
        spec = decode(annotations.get(annotation_keys.RESOURCE_SPEC, "{}"), ResourceSpec)
    except DecodeError:
        spec = ResourceSpec()
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
    if (wanted, preferred) == (spec.required_cpu_bind_policy, spec.preferred_cpu_bind_policy):
        return None
    members = {
        "requiredCPUBindPolicy": wanted,
        "preferredCPUBindPolicy": preferred,
        "preferredCPUExclusivePolicy": spec.preferred_cpu_exclusive_policy,
    }
    return json.dumps({name: value for name, value in members.items() if value}, separators=(",", ":"))
