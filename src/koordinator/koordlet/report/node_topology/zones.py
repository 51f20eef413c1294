"""The zones of a NodeResourceTopology: one for each NUMA node, with what it has; pure.

Others write into zones, too: koord-manager puts batch resources there. Of a zone the agent owns four resources.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from koordinator.api.node import Node
from koordinator.api.node_resource_topology import NODE_ZONE_PREFIX, NODE_ZONE_TYPE, ResourceInfo, Zone
from koordinator.api.quantity import Format, Quantity
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.model.huge_pages import huge_page_pool, without_pool
from koordinator.node.cpu_topology import CPUTopology
from koordinator.node.memory import NUMANodeMemory

_HUGE_PAGES: Final = {2048: "hugepages-2Mi", 1024 * 1024: "hugepages-1Gi"}
OWN_RESOURCES: Final = frozenset({CPU, MEMORY, *_HUGE_PAGES.values()})
_NANO: Final = 10**9


class _Reserved(NamedTuple):
    """Of each NUMA node, in units of 10**-9; in whole milli-CPU and bytes."""

    cpu: int = 0
    memory: int = 0


def zones_of(
    topology: CPUTopology, memory: Sequence[NUMANodeMemory], node: Node, *, deduct_reserved: bool
) -> tuple[Zone, ...]:
    """The zones, by name as a text. A NUMA node without CPUs has a zone, too: its memory is there to be used; and so
    has one of which the memory is not known.

    ``deduct_reserved``: what the Node's allocatable lacks of its capacity is taken off, from each zone the same.
    """
    known = {numa.number: numa for numa in memory}
    numbers = known.keys() | topology.by_numa_node.keys()
    # What the allocatable lacks contains the pool of huge pages, which zones are without if it is known.
    pool = huge_page_pool(node) if any(numa.huge_page_bytes for numa in memory) else 0
    reserved = _reserved_of_each(node, len(numbers), pool) if deduct_reserved else _Reserved()
    zones = (
        _zone(
            known.get(number) or NUMANodeMemory(number, 0, 0, {}), len(topology.by_numa_node.get(number, ())), reserved
        )
        for number in numbers
    )
    return tuple(sorted(zones, key=lambda zone: zone.name))


def merged_zones(present: Sequence[Zone], wanted: Sequence[Zone]) -> list[Zone]:
    """The wanted zones with what others have written into those that are there; zones that are not wanted are gone."""
    by_name = {zone.name: zone for zone in present}
    return [_merged(by_name.get(zone.name), zone) for zone in wanted]


def _merged(present: Zone | None, wanted: Zone) -> Zone:
    if present is None:
        return wanted
    foreign = [resource for resource in present.resources if resource.name not in OWN_RESOURCES]
    resources = sorted([*foreign, *wanted.resources], key=lambda resource: resource.name)
    return msgspec.structs.replace(present, type=wanted.type, resources=resources)


def _zone(numa: NUMANodeMemory, cpus: int, reserved: _Reserved) -> Zone:
    amounts = {
        CPU: Quantity(max(cpus * _NANO - reserved.cpu, 0)),
        MEMORY: _bytes(max(numa.total - numa.huge_page_bytes - reserved.memory // _NANO, 0)),
        **{name: _bytes(numa.huge_pages.get(kib, 0) * kib * 1024) for kib, name in _HUGE_PAGES.items()},
    }
    resources = [
        # The original writes the same amount three times, and readers go by the allocatable.
        ResourceInfo(name=name, capacity=amount, allocatable=amount, available=amount)
        for name, amount in sorted(amounts.items())
    ]
    return Zone(name=f"{NODE_ZONE_PREFIX}{numa.number}", type=NODE_ZONE_TYPE, resources=resources)


def _bytes(size: int) -> Quantity:
    return Quantity.from_value(size, Format.BINARY_SI)


def _reserved_of_each(node: Node, count: int, pool: int) -> _Reserved:
    def part(resource: str, unit: int, apart: int = 0) -> int:
        capacity, allocatable = node.status.capacity.get(resource), node.status.allocatable.get(resource)
        if capacity is None or allocatable is None or not count:
            return 0
        total = without_pool(capacity.nanos - allocatable.nanos, apart)
        # Rounded up, so that the zones together never have more than the node.
        return -(-total // (count * unit)) * unit

    return _Reserved(part(CPU, _NANO // 1000), part(MEMORY, _NANO, pool * _NANO))
