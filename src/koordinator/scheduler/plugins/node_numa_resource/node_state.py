"""One node's state in the plugin: its topology, its rules, and the allocations on it, kept current by events; its
document, as the original's (service.go, NodeResponse); and the rows of nodes that apply a policy to pods without
requirements of their own, as arrays, since these may be all nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from koordinator.api.annotations import RESOURCE_STATUS
from koordinator.api.codec import to_document
from koordinator.api.cpu_list import format_cpu_list
from koordinator.api.node import Node
from koordinator.api.quantity import Format
from koordinator.model.cpu_allocation.accumulator import ExclusivePolicy
from koordinator.model.cpu_allocation.topology import CPU as LogicalCPU
from koordinator.model.cpu_allocation.topology import BindPolicy, CPUTopology, cpus_of
from koordinator.model.numa_topology.hints import NUMANodeState
from koordinator.scheduler.engine.allocations import NodeAllocations
from koordinator.scheduler.engine.columns import Ints, Mask, NodeColumns, Rows, at
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.row_amounts import CPU, grown
from koordinator.scheduler.plugins.node_numa_resource.allocation import (
    MILLI,
    Amounts,
    FreeCapacity,
    PodAllocation,
    Request,
    Taken,
    amplified,
    quantity,
)
from koordinator.scheduler.plugins.node_numa_resource.node_topology import NodeRules, NodeTopology, rules_of
from koordinator.scheduler.plugins.node_numa_resource.pod_requirements import PodRequirements

_NO_CPUS = CPUTopology(())
CPUS: Final = "cpu"
_CPUSET: Final = f"metadata.annotations[{RESOURCE_STATUS}].cpuset"


class NodeState(NodeAllocations[PodAllocation]):
    """``rules`` and ``cpus`` may be read at any time; allocations change by ``hold`` and ``release`` alone."""

    def __init__(self) -> None:
        super().__init__()
        self.topology: NodeTopology | None = None
        self.rules = NodeRules()
        self.cpus = _NO_CPUS
        self.reserved = 0
        """The CPUs that no pod is bound to."""
        self.counts: dict[int, int] = {}
        """How many pods hold each CPU, including Reservations."""
        self._node: Node | None = None
        self._amounts: dict[int, dict[str, int]] = {}
        self._taken: Taken | None = None
        self._free: dict[BindPolicy, int] = {}
        self._states: Mapping[int, NUMANodeState] | None = None

    # Events.

    def set_node(self, node: Node) -> bool:
        """Apply the Node; returns whether its rules have changed."""
        self._node = node
        return self._refresh_rules()

    def set_topology(self, topology: NodeTopology | None) -> None:
        """Apply its NodeResourceTopology; None if there is none."""
        self.topology = topology
        self.cpus = topology.cpus if topology is not None else _NO_CPUS
        self.reserved = topology.reserved if topology is not None else 0
        self.check()
        self._refresh_rules()
        self._forget_derived()

    def _refresh_rules(self) -> bool:
        before = self.rules
        self.rules = rules_of(self._node, self.topology)
        return self.rules != before

    def subjects(self, pod: PodInfo) -> tuple[str, ...]:
        """One: the CPUs, and the amounts of NUMA nodes."""
        return (CPUS,)

    def missing(self, pod: PodInfo, allocation: PodAllocation) -> Sequence[tuple[str, str]]:
        """The CPUs that the pod is bound to by its record."""
        there = self.cpus.all
        missing = allocation.cpus & ~there
        if not there or not missing:
            return ()
        texts = [format_cpu_list(cpus_of(each)) for each in (missing, there)]
        return ((CPUS, f"{_CPUSET}: {texts[0]!r} is not usable: the node has no such CPU; allowed are {texts[1]}"),)

    def count(self, allocation: PodAllocation, sign: int) -> None:
        for cpu in cpus_of(allocation.cpus):
            count = self.counts.pop(cpu, 0) + sign
            if count:
                self.counts[cpu] = count
        for numa_node, amounts in allocation.amounts.items():
            held = self._amounts.setdefault(numa_node, {})
            for name, amount in amounts.items():
                held[name] = held.get(name, 0) + sign * amount
        self._forget_derived()

    def _forget_derived(self) -> None:
        self._taken = self._states = None
        self._free = {}

    # Derived values.

    @property
    def is_plain(self) -> bool:
        """Whether it applies no policy to pods without requirements of their own."""
        return self.rules.is_plain

    @property
    def taken(self) -> Taken:
        """What all pods hold. To be read only."""
        if self._taken is None:
            exclusive: dict[ExclusivePolicy, int] = {}
            for each in self.held.values():
                if each.exclusive:
                    exclusive[each.exclusive] = exclusive.get(each.exclusive, 0) | each.cpus
            self._taken = Taken(sum([1 << cpu for cpu in self.counts]), self._amounts, exclusive)
        return self._taken

    @property
    def bound_cpus(self) -> int:
        """How many CPUs pods are bound to."""
        return len(self.counts)

    @property
    def usable_cpus(self) -> int:
        """The CPUs that pods may be bound to."""
        return self.cpus.all & ~self.reserved

    def free_cpus(self, bind: BindPolicy) -> int:
        """How many CPUs may be given to a pod that requires the policy; NONE for a pod that requires none."""
        if bind not in self._free:
            self._free[bind] = self.cpus.usable(self.usable_cpus & ~self.taken.cpus, bind).bit_count()
        return self._free[bind]

    @property
    def added_cpu(self) -> int:
        """What the CPU of bound pods counts more because it counts amplified, in milli-CPU."""
        bound = self.bound_cpus * MILLI
        return amplified(bound, self.rules.cpu_ratio or 0.0) - bound

    @property
    def states(self) -> Mapping[int, NUMANodeState]:
        """Whether each NUMA node is used by pods on it alone, or by pods across several; unused ones are omitted. A pod
        that is not bound to CPUs is where its amounts are."""
        if self._states is None:
            found: dict[int, NUMANodeState] = {}
            for each in self.held.values():
                numa_nodes = self._numa_nodes(each)
                for numa_node in numa_nodes:
                    if len(numa_nodes) > 1:
                        found[numa_node] = NUMANodeState.SHARED
                    else:
                        found.setdefault(numa_node, NUMANodeState.SINGLE)
            self._states = found
        return self._states

    def _numa_nodes(self, allocation: PodAllocation) -> set[int]:
        if not allocation.cpus:
            return {numa_node for numa_node, _ in allocation.resources}
        return {numa_node for numa_node, cpus in self.cpus.numa_nodes.items() if cpus & allocation.cpus}

    def request(self, requirements: PodRequirements, packs: bool) -> Request:
        """The pod's request on this node. ``packs`` is the setting of the plugin's arguments. CPUs are bound if the pod
        or the node requires it."""
        rules = self.rules
        packs = packs if rules.packs is None else rules.packs
        request = Request(requirements.amounts, requirements.formats, packs=packs)
        if not requirements.binds and not (rules.bind and requirements.cpu):
            return request
        required = requirements.required or rules.bind
        return replace(
            request,
            cpus=requirements.cpu // MILLI,
            bind=required or requirements.bind,
            required=bool(required),
            exclusive=requirements.exclusive,
        )


def short_of_cpu(wanted: Any, allocatable: Any, requested: Any, bound: Any, added: Any) -> Any:
    """Whether less than ``wanted`` is left when ``bound``, the CPU of bound pods, counts ``added`` more. All in
    milli-CPU; of one node, or of many in arrays."""
    return wanted > allocatable - requested - added * (requested >= bound)


class SpecialRows(set[int]):
    """The rows, with what arrays say of them."""

    def __init__(self) -> None:
        super().__init__()
        self._facts: Ints = np.zeros((4, 64), dtype=np.int64)
        """Of each row: 1 if it has to be evaluated by itself; 1 if CPU amplification is its only policy; the CPU that
        pods are bound to, in milli-CPU; NodeState.added_cpu."""

    def note(self, row: int, node: NodeState | None) -> None:
        """Update the row from the present policies of its node; None if the node is gone."""
        self._fit(row)
        self.discard(row)
        if node is None or node.is_plain:
            self._facts[:, row] = 0
            return
        self.add(row)
        is_known = node.topology is None or bool(node.cpus)
        amplified = is_known and not node.rules.bind and not node.rules.numa and node.rules.cpu_ratio is not None
        self._facts[:, row] = not amplified, amplified, node.bound_cpus * MILLI, node.added_cpu

    def among(self, rows: Rows) -> Rows:
        """The indices in ``rows`` of those that have to be evaluated one by one."""
        if not self:
            return rows[:0]
        self._fit(int(rows.max(initial=0)))
        return np.flatnonzero(self._facts[0].take(rows))

    def short_of_cpu(self, columns: NodeColumns, rows: Rows, cpu: int) -> Mask:
        """For each of ``rows``, whether amplification is the node's only policy and it has less than ``cpu``
        (milli-CPU) left when that of bound pods counts amplified."""
        if not self or not cpu:
            return np.zeros(rows.shape[0], dtype=np.bool_)
        self._fit(int(rows.max(initial=0)))
        requested = at(columns.taken(CPU, with_defaults=False), rows)
        _, amplified, bound, added = self._facts.take(rows, axis=1)
        short: Mask = short_of_cpu(cpu, at(columns.allocatable[:, CPU], rows), requested, bound, added)
        short &= amplified != 0
        return short

    def _fit(self, row: int) -> None:
        if row >= self._facts.shape[1]:
            self._facts = grown(self._facts, (4, 2 * (row + 1)))


_ONCE = 1
"""How many pods may share a CPU."""


def node_document(name: str, node: NodeState, pods: Mapping[str, PodInfo]) -> dict[str, Any]:
    """The document of a node that has CPUs. ``pods`` are on it, by uid."""
    capacity = FreeCapacity(node.cpus, node.usable_cpus, node.rules.zones, node.taken)
    zones = node.rules.zones.amounts
    remaining = {numa_node: capacity.left(numa_node) for numa_node in zones}
    taken = {numa_node: amounts for numa_node, amounts in node.taken.amounts.items() if any(amounts.values())}
    document: dict[str, Any] = {
        "name": name,
        "cpuTopology": _topology(node.cpus),
        "reservedCPUs": _cpus(node.reserved),
        "maxRefCount": _ONCE,
        "numaTopologyPolicy": node.rules.numa.value,
        "numaNodeResources": _zones(zones, node),
        "remainingNUMANodeResources": _zones(remaining, node) or None,
        "allocatedNUMANodeResources": _zones(taken, node) or None,
        "availableCPUs": _cpus(node.usable_cpus & ~node.taken.cpus),
        "allocatedCPUs": _details(_allocated(node)),
        "allocatedPods": [_pod(uid, held, pods.get(uid)) for uid, held in sorted(node.held.items())] or None,
    }
    if node.topology is not None:
        document["policy"] = to_document(node.topology.kubelet)
    if node.rules.zones.ratios:
        document["amplificationRatios"] = dict(node.rules.zones.ratios)
    return document


def _topology(topology: CPUTopology) -> dict[str, Any]:
    cpus = topology.cpus.values()
    return {
        "numCPUs": len(cpus),
        "numCores": len({(cpu.socket, cpu.numa_node, cpu.core) for cpu in cpus}),
        "numNodes": len({(cpu.socket, cpu.numa_node) for cpu in cpus}),
        "numSockets": len(topology.sockets),
        "cpuDetails": _details((cpu, 0, "") for cpu in cpus),
    }


def _allocated(node: NodeState) -> Iterable[tuple[LogicalCPU, int, str]]:
    for number, count in sorted(node.counts.items()):
        policies = [held.exclusive.value for held in node.held.values() if held.exclusive and held.cpus >> number & 1]
        yield node.cpus.cpus.get(number, LogicalCPU(number, 0, 0, 0)), count, policies[-1] if policies else ""


def _details(cpus: Iterable[tuple[LogicalCPU, int, str]]) -> dict[str, Any]:
    return {
        str(cpu.number): {
            "cpuID": cpu.number,
            "coreID": cpu.core,
            "nodeID": cpu.numa_node,
            "socketID": cpu.socket,
            "refCount": count,
            "exclusivePolicy": policy,
        }
        for cpu, count, policy in cpus
    }


def _pod(uid: str, held: PodAllocation, pod: PodInfo | None) -> dict[str, Any]:
    metadata = pod.pod.metadata if pod is not None else None
    document: dict[str, Any] = {
        "uid": uid,
        "namespace": metadata.namespace if metadata is not None else "",
        "name": metadata.name if metadata is not None else "",
        "cpuset": _cpus(held.cpus),
        "cpuExclusivePolicy": held.exclusive.value,
        "numaNodeResources": [
            {"node": number, "resources": {name: str(amount) for name, amount in amounts}}
            for number, amounts in held.resources
        ],
    }
    return {key: value for key, value in document.items() if value}


def _zones(amounts: Amounts, node: NodeState) -> list[dict[str, Any]]:
    formats = node.rules.zones.formats
    return [
        {
            "node": number,
            "resources": {
                name: str(quantity(name, amount, formats.get((number, name), Format.DECIMAL_SI)))
                for name, amount in sorted(of_node.items())
            },
        }
        for number, of_node in sorted(amounts.items())
    ]


def _cpus(mask: int) -> str:
    return format_cpu_list(cpus_of(mask))
