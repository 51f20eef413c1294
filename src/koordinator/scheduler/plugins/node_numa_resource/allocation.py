"""What a pod gets on a node: CPUs, and amounts by NUMA node. Pure.

The rules are the original's (resource_manager.go). Amounts are in canonical units: CPU in milli-CPU, the rest whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from koordinator.api.quantity import Format, Quantity
from koordinator.api.resource_names import CPU
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
    """What a pod holds. ``resources`` are by NUMA node, ascending, then by name."""

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
    """What the NUMA nodes of a node have, amplified; ascending."""

    amounts: Amounts = field(default_factory=dict)
    formats: Mapping[tuple[int, str], Format] = field(default_factory=dict)
    """How the quantities of NUMA node and resource are printed."""
    ratios: Mapping[str, float] = field(default_factory=dict)
    """By what resources have been multiplied."""

    @property
    def cpu_ratio(self) -> float:
        """How much more CPU the node shows than it has; at most 1 for no more."""
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
    """What a pod needs of a node."""

    amounts: Mapping[str, int]
    formats: Mapping[str, Format]
    cpus: int = 0
    """To be bound to; 0 if it is not bound to any."""
    bind: BindPolicy = BindPolicy.NONE
    required: bool = False
    """Whether the bind policy has to be satisfied."""
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE
    packs: bool = False
    """Whether NUMA nodes with the least that is free come first."""


@dataclass(frozen=True, slots=True)
class Room:
    """A node as a pod sees it. ``limits`` are all that it may use of each NUMA node, if anything limits it."""

    cpus: CPUTopology
    usable_cpus: int
    """That nobody has reserved."""
    zones: Zones
    taken: Taken
    preferred: int = 0
    """CPUs to take first."""
    limits: Amounts | None = None

    def free_cpus(self, request: Request) -> int:
        """The CPUs that may be given to the pod."""
        free = self.usable_cpus & ~self.taken.cpus
        return self.cpus.usable(free, request.bind) if request.required else free

    def available(self, request: Request) -> dict[int, dict[str, int]]:
        """What each NUMA node has for the pod."""
        if self.limits is not None:
            found = {node: dict(amounts) for node, amounts in self.limits.items()}
        else:
            found = {node: self.left(node) for node in self.zones.amounts}
        if request.required and request.cpus:
            free = self.free_cpus(request)
            for node, amounts in found.items():
                if amounts.get(CPU):
                    there = (free & self.cpus.numa_nodes.get(node, 0)).bit_count()
                    amounts[CPU] = min(amounts[CPU], there * MILLI)
        return found

    def left(self, node: int) -> dict[str, int]:
        taken = dict(self.taken.amounts.get(node, {}))
        if taken and self.zones.cpu_ratio > 1:
            bound = (self.taken.cpus & self.cpus.numa_nodes.get(node, 0)).bit_count() * MILLI
            taken[CPU] = taken.get(CPU, 0) - bound + amplified(bound, self.zones.cpu_ratio)
        zone = self.zones.amounts[node]
        return {name: max(0, amount - max(0, taken.get(name, 0))) for name, amount in zone.items()}


def allocate(room: Room, request: Request, mask: int | None) -> PodAllocation | tuple[Reason, ...]:
    """What the pod gets, from the NUMA nodes of ``mask`` unless that is None; otherwise why it cannot have it."""
    amounts: dict[int, dict[str, Quantity]] = {}
    if mask is not None:
        if not room.zones.amounts:
            return NO_ZONES
        amounts, missing = spread(room, request, mask)
        if missing:
            return tuple([Reason(f"Insufficient NUMA {name}") for name in missing])
    if not request.cpus:
        return PodAllocation.of(0, amounts)
    try:
        cpus = _bound(room, request, amounts)
    except NotEnoughCPUsError as error:
        return (Reason(str(error)),)
    if request.required and not room.cpus.satisfies(cpus, request.bind):
        return (Reason(f"insufficient CPUs to satisfy required cpu bind policy {request.bind}"),)
    return PodAllocation.of(cpus, amounts, request.exclusive)


def spread(room: Room, request: Request, mask: int) -> tuple[dict[int, dict[str, Quantity]], list[str]]:
    """Each resource on the NUMA nodes of the mask, as evenly as it goes; and the resources of which they have too
    little. What no NUMA node has is left out."""
    available = room.available(request)
    known = {name for amounts in available.values() for name in amounts}
    found: dict[int, dict[str, Quantity]] = {}
    missing: list[str] = []
    for name, amount in sorted(request.amounts.items()):
        if name not in known:
            continue
        nodes = sorted(numa_nodes_of(mask), key=lambda node: (available.get(node, {}).get(name, 0), node))
        left = amount
        for index, node in enumerate(nodes):
            part, there = _part(left, len(nodes) - index, name, room, request), available.get(node, {}).get(name, 0)
            if given := min(part, there):
                quantity_format = request.formats.get(name) if part < there else room.zones.formats.get((node, name))
                found.setdefault(node, {})[name] = quantity(name, given, quantity_format or Format.DECIMAL_SI)
                left -= given
        if left:
            missing.append(name)
    return found, missing


def _part(amount: int, nodes: int, name: str, room: Room, request: Request) -> int:
    """The share of one of so many NUMA nodes, in whole CPUs or cores where these are bound."""
    if name != CPU or not request.cpus:
        return amount // nodes
    unit = MILLI
    if request.required and request.bind is BindPolicy.FULL_PCPUS:
        unit *= room.cpus.cpus_per_core
    return amount // unit // nodes * unit


def _bound(room: Room, request: Request, amounts: Mapping[int, Mapping[str, Quantity]]) -> int:
    """The CPUs of the pod: of each NUMA node as many as it has got of its CPU, or from anywhere."""
    free = room.free_cpus(request)
    if free.bit_count() < request.cpus:
        raise NotEnoughCPUsError(NOT_ENOUGH)
    wish = Preferences(
        request.bind, request.exclusive, room.taken.exclusive.get(request.exclusive, 0), packs=request.packs
    )
    if not amounts:
        return take_preferred(room.cpus, free, room.preferred, request.cpus, wish)
    cpus = 0
    for node in sorted(amounts):
        there = free & room.cpus.numa_nodes.get(node, 0)
        wanted = amounts[node][CPU].milli // MILLI if CPU in amounts[node] else 0
        cpus |= take_preferred(room.cpus, there, room.preferred, min(wanted, there.bit_count()), wish)
    if cpus.bit_count() != request.cpus:
        raise NotEnoughCPUsError(NOT_ENOUGH)
    return cpus


def amplified(amount: int, ratio: float) -> int:
    """As the original rounds it."""
    return ceil(amount * ratio) if ratio > 1 else amount


def canonical(name: str, amount: Quantity) -> int:
    """In milli-CPU, or whole units."""
    return amount.milli if name == CPU else amount.value


def quantity(name: str, amount: int, quantity_format: Format) -> Quantity:
    """The opposite of ``canonical``."""
    return (Quantity.from_milli if name == CPU else Quantity.from_value)(amount, quantity_format)


def added(*parts: Amounts) -> dict[int, dict[str, int]]:
    """The sum of amounts."""
    total: dict[int, dict[str, int]] = {}
    for part in parts:
        _shift(total, part, 1)
    return total


def subtracted(amounts: Amounts, *parts: Amounts) -> dict[int, dict[str, int]]:
    """``amounts`` without ``parts``; may be negative."""
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
