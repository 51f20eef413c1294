"""What overcommitment needs to know of a NodeResourceTopology, worked out once for each version of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError
from koordinator.api.meta import WireStruct
from koordinator.api.node_resource_topology import NODE_ZONE_PREFIX, NodeResourceTopology, Zone
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.model.overcommit.amounts import Amounts
from koordinator.model.slo_configuration.documents import read_given, read_object

_NUMBERED: Final = re.compile(re.escape(NODE_ZONE_PREFIX) + r"(0|[1-9][0-9]{0,5})")


class CPUBasicInfo(WireStruct):
    """The part of the annotation node.koordinator.sh/cpu-basic-info that normalization reads."""

    cpu_model: str = ""
    hyper_thread_enabled: bool = False
    turbo_enabled: bool = False


class ZoneFacts(NamedTuple):
    name: str
    numa_node: int
    """From the zone's name; its place in the list where the name has no number."""
    allocatable: Amounts


@dataclass(frozen=True, slots=True)
class TopologyFacts:
    zones: tuple[ZoneFacts, ...] = ()
    """Empty unless some zone has CPU or memory."""
    cpu_info: CPUBasicInfo | None = None
    cpu_info_problem: str = ""
    """Why there is no ``cpu_info``."""


def topology_facts(topology: NodeResourceTopology) -> TopologyFacts:
    zones = tuple(_zone(zone, place) for place, zone in enumerate(topology.zones))
    if len({zone.numa_node for zone in zones}) < len(zones):
        zones = tuple(zone._replace(numa_node=place) for place, zone in enumerate(zones))
    is_filled = any(info.name in (CPU, MEMORY) for zone in topology.zones for info in zone.resources)
    info, problem = _cpu_info(topology)
    return TopologyFacts(zones if is_filled else (), info, problem)


def _zone(zone: Zone, place: int) -> ZoneFacts:
    matched = _NUMBERED.fullmatch(zone.name)
    amounts = {info.name: info.allocatable for info in zone.resources}
    cpu, memory = amounts.get(CPU), amounts.get(MEMORY)
    allocatable = Amounts(cpu.milli if cpu is not None else 0, memory.value if memory is not None else 0)
    return ZoneFacts(zone.name, int(matched[1]) if matched else place, allocatable)


def _cpu_info(topology: NodeResourceTopology) -> tuple[CPUBasicInfo | None, str]:
    where = f"metadata.annotations[{annotation_keys.CPU_BASIC_INFO}] of the NodeResourceTopology"
    text = topology.metadata.annotations.get(annotation_keys.CPU_BASIC_INFO)
    if text is None:
        return None, f"{where} is missing"
    try:
        return read_given(read_object(text), CPUBasicInfo).values, ""
    except DecodeError as error:
        return None, f"{where} cannot be read: {error}"
