"""The topology of GPUs in a machine, as a tree: the node, its NUMA nodes, their PCIe switches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from koordinator.api.device import DeviceInfo


@dataclass(frozen=True, slots=True)
class GPUScope:
    """A part of the machine."""

    level: int
    """1 for the node, 2 for a NUMA node, 3 for a PCIe switch."""
    minors: tuple[int, ...]
    """Of the GPUs in it, ascending."""
    parts: tuple[GPUScope, ...] = ()
    """By their ids."""


def gpu_scopes(gpus: Sequence[DeviceInfo]) -> GPUScope | None:
    """The tree of these GPUs; None if there are none, or if the position of any is unknown."""
    switches: dict[int, dict[str, list[int]]] = {}
    for gpu in gpus:
        if gpu.topology is None or gpu.minor is None:
            return None
        switches.setdefault(gpu.topology.node_id, {}).setdefault(gpu.topology.pcie_id, []).append(gpu.minor)
    if not switches:
        return None
    parts = tuple(
        GPUScope(
            2,
            _ascending(minor for minors in by_switch.values() for minor in minors),
            tuple(GPUScope(3, _ascending(minors)) for _, minors in sorted(by_switch.items())),
        )
        for _, by_switch in sorted(switches.items())
    )
    return GPUScope(1, _ascending(minor for part in parts for minor in part.minors), parts)


def _ascending(minors: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(minors)))
