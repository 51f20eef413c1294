"""The annotations of a Node that keep a part of it for programs outside Kubernetes."""

from __future__ import annotations

import msgspec

from koordinator.api.cpu_list import parse_cpu_list
from koordinator.api.meta import WireStruct
from koordinator.api.pod import ResourceList


class NodeReservation(WireStruct):
    """node.koordinator.sh/reservation. A list of CPUs goes before an amount of CPU."""

    resources: ResourceList = {}
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")
    apply_policy: str = ""
    """Empty and ``Default`` take the reservation off what the scheduler sees."""


class SystemQoSResource(WireStruct):
    """node.koordinator.sh/system-qos-resource: CPUs of the system's own processes, and of pods of the class SYSTEM."""

    cpuset: str = ""
    cpuset_exclusive: bool | None = None
    """Whether other pods keep off them; unset is yes."""


def count_cpus(cpu_list: str) -> int:
    """How many CPUs a list such as ``0-3,7`` names; a range that ends before it begins has none. Raises ValueError."""
    if not cpu_list:
        raise ValueError(f"{cpu_list!r} is no list of CPUs: write numbers and ranges, such as 0-3,7")
    return len(parse_cpu_list(cpu_list))
