"""The annotation node.koordinator.sh/reservation: what a node keeps for programs outside Kubernetes."""

from __future__ import annotations

from typing import Final

import msgspec

from koordinator.api.meta import WireStruct
from koordinator.api.pod import ResourceList

_MOST_CPUS: Final = 1 << 16


class NodeReservation(WireStruct):
    """A list of CPUs goes before an amount of CPU."""

    resources: ResourceList = {}
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")
    apply_policy: str = ""
    """Empty and ``Default`` take the reservation off what the scheduler sees."""


def count_cpus(cpu_list: str) -> int:
    """How many CPUs a list such as ``0-3,7`` names; a range that ends before it begins has none. Raises ValueError."""
    cpus: set[int] = set()
    for part in cpu_list.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{cpu_list!r} is no list of CPUs: write numbers and ranges, such as 0-3,7")
        start, end = int(first), int(last if dash else first)
        if end > _MOST_CPUS:
            raise ValueError(f"{cpu_list!r} names CPU {end}: the highest is {_MOST_CPUS}")
        cpus.update(range(start, end + 1))
    return len(cpus)
