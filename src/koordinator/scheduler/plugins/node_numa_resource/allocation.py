"""The allocation of a pod on a node: CPUs, and amounts by NUMA node. Pure.

The rules are the original's (resource_manager.go). Amounts are in canonical units: CPU in milli-CPU, the rest whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from koordinator.api.quantity import Format, Quantity
from koordinator.api.resource_names import CPU
from koordinator.api.usable_amounts import MOST, bounded
from koordinator.model.cpu_allocation.accumulator import (
    NOT_ENOUGH,
    ExclusivePolicy,
    NotEnoughCPUsError,
    Preferences,
    take_preferred,
)
from koordinator.model.cpu_allocation.topology import BindPolicy, CPUTopology
from koordinator.model.numa_topology.hints import numa_nodes_of
from koordinator.scheduler.engine.framework import Reason

MILLI: Final = 1000
Amounts = Mapping[int, Mapping[str, int]]
"""By NUMA node and resource."""
NO_ZONES: Final = (Reason("insufficient resources on NUMA Node", unresolvable=True),)


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """The allocation of a pod. ``resources`` are by NUMA node, ascending, then by name."""

    cpus: int = 0
    resources: tuple[tuple[int, tuple[tuple[str, Quantity], ...]], ...] = ()
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE

    @classmethod
    def of(
        cls,
        cpus: int,
        amounts: Mapping[int, Mapping[str, Quantity]],
        exclusive: ExclusivePolicy = ExclusivePolicy.NONE,
    ) -> PodAllocation:
        """The amounts in any order."""
        return cls(cpus, tuple([(node, tuple(sorted(amounts[node].items()))) for node in sorted(amounts)]), exclusive)

    @property
    def amounts(self) -> dict[int, dict[str, int]]:
        """``resources`` in canonical units."""
        return {node: {name: canonical(name, amount) for name, amount in each} for node, each in self.resources}


@dataclass(frozen=True, slots=True)
class Zones:
    """The resources of a node's NUMA nodes, amplified; ascending."""

    amounts: Amounts = field(default_factory=dict)
    formats: Mapping[tuple[int, str], Format] = field(default_factory=dict)
    """The formats of quantities by NUMA node and resource."""
    ratios: Mapping[str, float] = field(default_factory=dict)
    """The amplification ratios by resource."""

    @property
    def cpu_ratio(self) -> float:
        """The amplification ratio of the node's CPU; at most 1 for none."""
        return self.ratios.get(CPU, 0.0)

    @property
    def numa_nodes(self) -> tuple[int, ...]:
        return tuple(self.amounts)


@dataclass(frozen=True, slots=True)
class Taken:
    """What is taken of a node, as the pod in question sees it."""

    cpus: int = 0
    amounts: Amounts = field(default_factory=dict)
    exclusive: Mapping[ExclusivePolicy, int] = field(default_factory=dict)
    """The CPUs of pods with an exclusive policy."""


@dataclass(frozen=True, slots=True)
class Request:
    """A pod's request on a node."""

    amounts: Mapping[str, int]
    formats: Mapping[str, Format]
    cpus: int = 0
    """The number of CPUs to bind the pod to; 0 if it is not bound to any."""
    bind: BindPolicy = BindPolicy.NONE
    required: bool = False
    """Whether the bind policy has to be satisfied."""
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE
    packs: bool = False
    """Whether NUMA nodes with the least that is free come first."""


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """A node as a pod sees it. ``limits`` are all that it may use of each NUMA node, if anything limits it."""

    cpus: CPUTopology
    usable_cpus: int
    """CPUs that are not reserved."""
    zones: Zones
    taken: Taken
    preferred: int = 0
    """CPUs to take first."""
    limits: Amounts | None = None

    def left(self, node: int) -> dict[str, int]:
        """What is left of a NUMA node."""
        zone, taken = self.zones.amounts[node], self.taken.amounts.get(node)
        if not taken:
            return dict(zone)
        if self.zones.cpu_ratio > 1:
            bound = (self.taken.cpus & self.cpus.numa_nodes.get(node, 0)).bit_count() * MILLI
            taken = {**taken, CPU: taken.get(CPU, 0) - bound + amplified(bound, self.zones.cpu_ratio)}
        return {name: max(0, amount - max(0, taken.get(name, 0))) for name, amount in zone.items()}


class NumaAllocator:
    """Allocates the free capacity of a node for one request, with what all sets of NUMA nodes share computed once.
    ``available`` is by NUMA node."""

    def __init__(self, capacity: FreeCapacity, request: Request) -> None:
        self._capacity = capacity
        self.request = request
        free = capacity.usable_cpus & ~capacity.taken.cpus if request.cpus else 0
        self._free = capacity.cpus.usable(free, request.bind) if request.required else free
        """The CPUs that may be given to the pod."""
        self.available = self._available()
        self._known = {name for amounts in self.available.values() for name in amounts}
        self._is_bound_by_core = bool(request.cpus) and request.required and request.bind is BindPolicy.FULL_PCPUS
        self._unit = (capacity.cpus.cpus_per_core if self._is_bound_by_core else 1) * MILLI if request.cpus else 1
        """CPU is divided between NUMA nodes in whole CPUs or cores where these are bound."""

    def _available(self) -> dict[int, dict[str, int]]:
        capacity, request = self._capacity, self.request
        if capacity.limits is not None:
            found = {node: dict(amounts) for node, amounts in capacity.limits.items()}
        else:
            found = {node: capacity.left(node) for node in capacity.zones.amounts}
        if request.required and request.cpus:
            for node, amounts in found.items():
                if amounts.get(CPU):
                    amounts[CPU] = min(amounts[CPU], self._there(node).bit_count() * MILLI)
        return found

    def _there(self, node: int) -> int:
        """The CPUs of a NUMA node that may be given to the pod."""
        return self._free & self._capacity.cpus.numa_nodes.get(node, 0)

    def fits(self, mask: int | None) -> bool:
        """Whether ``allocate`` would succeed; quick, since it does not choose CPUs."""
        request, nodes = self.request, numa_nodes_of(mask) if mask is not None else ()
        if mask is not None and not self._has_amounts(nodes):
            return False
        if not request.cpus:
            return True
        if self._free.bit_count() < request.cpus:
            return False
        shares = self._shares(CPU, request.amounts[CPU], nodes)[0] if CPU in self._known else {}
        if not shares or (self._is_bound_by_core and any(share % self._unit for share in shares.values())):
            # The result depends on which CPUs are chosen.
            return isinstance(self.allocate(mask), PodAllocation)
        found = sum([min(share // MILLI, self._there(node).bit_count()) for node, share in shares.items()])
        return found == request.cpus

    def _has_amounts(self, nodes: Sequence[int]) -> bool:
        if not self._capacity.zones.amounts:
            return False
        for name, amount in self.request.amounts.items():
            if name not in self._known:
                continue
            if name == CPU and self.request.cpus:
                if self._shares(name, amount, nodes)[1]:
                    return False
            elif sum([self.available.get(node, {}).get(name, 0) for node in nodes]) < amount:
                return False
        return True

    def allocate(self, mask: int | None) -> PodAllocation | tuple[Reason, ...]:
        """The pod's allocation from the NUMA nodes of ``mask`` (None: from all), or the reasons why there is none."""
        capacity, request = self._capacity, self.request
        amounts: dict[int, dict[str, Quantity]] = {}
        if mask is not None:
            if not capacity.zones.amounts:
                return NO_ZONES
            amounts, missing = self._spread(numa_nodes_of(mask))
            if missing:
                return tuple([Reason(f"Insufficient NUMA {name}") for name in missing])
        if not request.cpus:
            return PodAllocation.of(0, amounts)
        try:
            cpus = self._bound(amounts)
        except NotEnoughCPUsError as error:
            return (Reason(str(error)),)
        if request.required and not capacity.cpus.satisfies(cpus, request.bind):
            return (Reason(f"insufficient CPUs to satisfy required cpu bind policy {request.bind}"),)
        return PodAllocation.of(cpus, amounts, request.exclusive)

    def _spread(self, nodes: Sequence[int]) -> tuple[dict[int, dict[str, Quantity]], list[str]]:
        """Each resource divided among the NUMA nodes, as evenly as possible; and the resources of which they have too
        little. Resources that no NUMA node has are omitted."""
        found: dict[int, dict[str, Quantity]] = {}
        missing: list[str] = []
        for name, amount in sorted(self.request.amounts.items()):
            if name not in self._known:
                continue
            shares, left = self._shares(name, amount, nodes)
            for node, share in shares.items():
                whole = share == self.available[node][name]
                formats = self._capacity.zones.formats.get((node, name)) if whole else self.request.formats.get(name)
                found.setdefault(node, {})[name] = quantity(name, share, formats or Format.DECIMAL_SI)
            if left:
                missing.append(name)
        return found, missing

    def _shares(self, name: str, amount: int, nodes: Sequence[int]) -> tuple[dict[int, int], int]:
        """The amount of a resource from each NUMA node, first those that have the least; and the missing amount."""
        there = {node: self.available.get(node, {}).get(name, 0) for node in nodes}
        unit = self._unit if name == CPU else 1
        shares: dict[int, int] = {}
        left = amount
        for index, node in enumerate(sorted(nodes, key=lambda node: (there[node], node))):
            share = min(left // unit // (len(nodes) - index) * unit, there[node])
            if share:
                shares[node] = share
                left -= share
        return shares, left

    def _bound(self, amounts: Mapping[int, Mapping[str, Quantity]]) -> int:
        """The CPUs of the pod: from each NUMA node as many as its amount of CPU there, or from anywhere."""
        capacity, request = self._capacity, self.request
        if self._free.bit_count() < request.cpus:
            raise NotEnoughCPUsError(NOT_ENOUGH)
        others = capacity.taken.exclusive.get(request.exclusive, 0)
        preferences = Preferences(request.bind, request.exclusive, others, packs=request.packs)
        if not amounts:
            return take_preferred(capacity.cpus, self._free, capacity.preferred, request.cpus, preferences)
        cpus = 0
        for node in sorted(amounts):
            there = self._there(node)
            wanted = amounts[node][CPU].milli // MILLI if CPU in amounts[node] else 0
            cpus |= take_preferred(
                capacity.cpus, there, capacity.preferred, min(wanted, there.bit_count()), preferences
            )
        if cpus.bit_count() != request.cpus:
            raise NotEnoughCPUsError(NOT_ENOUGH)
        return cpus


def amplified(amount: int, ratio: float) -> int:
    """Rounded as in the original; at most what counts at all."""
    return ceil(min(amount * ratio, MOST)) if ratio > 1 else amount


def canonical(name: str, amount: Quantity) -> int:
    """In milli-CPU, or whole units, within the bounds of what can be meant."""
    return bounded(amount.milli if name == CPU else amount.value)


def quantity(name: str, amount: int, quantity_format: Format) -> Quantity:
    """The reverse of ``canonical``."""
    return (Quantity.from_milli if name == CPU else Quantity.from_value)(amount, quantity_format)


def added(*parts: Amounts) -> dict[int, dict[str, int]]:
    """The sum of amounts."""
    total: dict[int, dict[str, int]] = {}
    for part in parts:
        _shift(total, part, 1)
    return total


def subtracted(amounts: Amounts, *parts: Amounts) -> dict[int, dict[str, int]]:
    """``amounts`` minus ``parts``; may be negative."""
    total = {node: dict(each) for node, each in amounts.items()}
    for part in parts:
        _shift(total, part, -1)
    return total


def positive(amounts: Amounts) -> dict[int, dict[str, int]]:
    """``amounts``, none below 0."""
    return {node: {name: max(0, amount) for name, amount in each.items()} for node, each in amounts.items()}


def _shift(total: dict[int, dict[str, int]], part: Amounts, sign: int) -> None:
    for node, amounts in part.items():
        of_node = total.setdefault(node, {})
        for name, amount in amounts.items():
            of_node[name] = of_node.get(name, 0) + sign * amount


def union(masks: Iterable[int]) -> int:
    """All CPUs of all masks."""
    found = 0
    for mask in masks:
        found |= mask
    return found
