"""What a pod gets of a machine with two NUMA nodes of 52 CPUs; figures of the original's own tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from koordinator.api.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.api.quantity import Format, Quantity
from koordinator.model.cpu_allocation.topology import BindPolicy, cpu_mask, cpus_of
from koordinator.model.numa_topology.hints import mask_of
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.plugins.node_numa_resource.allocation import (
    FreeCapacity,
    NumaAllocator,
    PodAllocation,
    Request,
    Taken,
    Zones,
    amplified,
)
from tests.model.cpu_allocation.machines import machine

_CPUS: Final = machine(sockets=2, cores=26)
_GIB: Final = 2**30
FULL, SPREAD = BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS


def capacity(cpus: str = "", cpu: Mapping[int, int] | None = None, ratio: float = 1.0) -> FreeCapacity:
    """The machine with these CPUs and this CPU by NUMA node taken."""
    zones = {number: {"cpu": amplified(52_000, ratio), "memory": 128 * _GIB} for number in (0, 1)}
    formats = {(number, name): Format.BINARY_SI for number in zones for name in ("memory",)}
    taken = Taken(
        cpu_mask(parse_cpu_list(cpus)), {number: {"cpu": each * 1000} for number, each in (cpu or {}).items()}
    )
    return FreeCapacity(_CPUS, _CPUS.all, Zones(zones, formats, {"cpu": ratio}), taken)


def request(cpu: float, bind: BindPolicy = BindPolicy.NONE, **changes: Any) -> Request:
    count = int(cpu) if bind else 0
    return Request({"cpu": int(cpu * 1000)}, {}, cpus=count, bind=bind, required=bool(bind), **changes)


def shown(found: PodAllocation | tuple[Reason, ...]) -> Any:
    """CPUs and CPU by NUMA node, or the reasons."""
    if not isinstance(found, PodAllocation):
        return ", ".join(reason.text for reason in found)
    return format_cpu_list(cpus_of(found.cpus)), {
        number: str(dict(amounts)["cpu"]) for number, amounts in found.resources
    }


_TAKEN: Final[dict[int, int]] = {0: 48, 1: 52}


@pytest.mark.parametrize(
    ("where", "requested", "nodes", "expected"),
    [
        (capacity(), request(54), (0,), "Insufficient NUMA cpu"),
        (capacity(), request(4, FULL), (0,), ("0-3", {0: "4"})),
        (capacity("4-103", _TAKEN), request(4, FULL), (0,), ("0-3", {0: "4"})),
        (capacity("1,3,5,7-103", _TAKEN), request(4, FULL), (0,), "Insufficient NUMA cpu"),
        (capacity(), request(4, SPREAD), (0,), ("0,2,4,6", {0: "4"})),
        (capacity("1,3,5,7-103", _TAKEN), request(4, SPREAD), (0,), ("0,2,4,6", {0: "4"})),
        (capacity("4-103", _TAKEN), request(4, SPREAD), (0,), "Insufficient NUMA cpu"),
        (capacity(ratio=1.5), request(4, SPREAD), (0,), ("0,2,4,6", {0: "4"})),
        (capacity("1,3,5,7-103", _TAKEN, 1.5), request(4, SPREAD), (0,), ("0,2,4,6", {0: "4"})),
        (capacity("0-49,52-101", {0: 50, 1: 50}, 1.5), request(4), (0,), "Insufficient NUMA cpu"),
        (capacity("0-43,53-96", {0: 48, 1: 48}), request(8, FULL), (0, 1), ("44-47,98-101", {0: "4", 1: "4"})),
        (capacity(), request(4, SPREAD), (0, 1), ("0,2,52,54", {0: "2", 1: "2"})),
        (capacity("1,3,5,7-101,103", {0: 48, 1: 50}), request(4, SPREAD), (0, 1), ("0,2,4,102", {0: "3", 1: "1"})),
        (capacity("4-100", {0: 48, 1: 49}), request(4, SPREAD), (0, 1), ("0,2,101-102", {0: "2", 1: "2"})),
        (capacity("1,3,5,7-97,103", {0: 48, 1: 47}), request(5, SPREAD), (0, 1), ("0,2,4,98,100", {0: "3", 1: "2"})),
        (capacity("4-103", _TAKEN), request(4, SPREAD), (0, 1), "Insufficient NUMA cpu"),
        (capacity(ratio=1.5), request(4, SPREAD), (0, 1), ("0,2,52,54", {0: "2", 1: "2"})),
        (
            capacity("1,3,5,7-101", {0: 48, 1: 50}, 1.5),
            request(4, SPREAD),
            (0, 1),
            ("0,2,4,102", {0: "3", 1: "1"}),
        ),
        (capacity("0-49,52-101", {0: 50, 1: 50}, 1.5), request(3.5), (0, 1), ("", {0: "1750m", 1: "1750m"})),
    ],
)
def test_the_figures_of_the_original(
    where: FreeCapacity, requested: Request, nodes: tuple[int, ...], expected: Any
) -> None:
    assert shown(NumaAllocator(where, requested).allocate(mask_of(nodes))) == expected


def test_a_resource_that_no_zone_has_is_not_looked_for() -> None:
    requested = Request({"cpu": 4000, "koordinator.sh/gpu-memory": 10}, {})

    found = NumaAllocator(capacity(), requested).allocate(mask_of([0]))

    assert found == PodAllocation.of(0, {0: {"cpu": Quantity.parse("4")}})


def test_without_zones_nothing_comes_from_numa_nodes() -> None:
    empty = FreeCapacity(_CPUS, _CPUS.all, Zones(), Taken())

    assert shown(NumaAllocator(empty, request(4)).allocate(mask_of([0]))) == "insufficient resources on NUMA Node"
    assert not NumaAllocator(empty, request(4)).fits(mask_of([0]))
    assert shown(NumaAllocator(empty, request(4, FULL)).allocate(None)) == ("0-3", {})


@pytest.mark.parametrize(("nodes", "texts"), [((0,), ["4Gi"]), ((0, 1), ["2Gi", "2Gi"])])
def test_amounts_are_printed_as_they_were_requested(nodes: tuple[int, ...], texts: list[str]) -> None:
    requested = Request({"memory": 4 * _GIB}, {"memory": Format.BINARY_SI})

    found = NumaAllocator(capacity(), requested).allocate(mask_of(nodes))

    assert isinstance(found, PodAllocation)
    assert [str(dict(amounts)["memory"]) for _, amounts in found.resources] == texts


def test_a_numa_node_that_has_less_gives_less_whatever_its_number() -> None:
    three = machine(sockets=3, cores=4)
    zones = Zones({number: {"memory": 100} for number in (0, 1, 2)})
    taken = Taken(0, {1: {"memory": 10}, 2: {"memory": 90}})

    found = NumaAllocator(FreeCapacity(three, three.all, zones, taken), Request({"memory": 60}, {})).allocate(
        mask_of([1, 2])
    )

    assert isinstance(found, PodAllocation)
    assert found.amounts == {1: {"memory": 50}, 2: {"memory": 10}}
