"""What simulated nodes are made of, as koordlet describes a real node: CPUs and NUMA nodes in NodeResourceTopologies,
and GPUs in Devices, as with the gate Accelerators.

It is there before the first pod: a scheduler that does not know a node's CPUs gives none of them to a pod alone.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from koordinator.api.annotations import CPU_TOPOLOGY
from koordinator.api.document import Document
from koordinator.api.kinds import DEVICES, NODE_RESOURCE_TOPOLOGIES, Kind
from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.nodes.node_objects import SimulatedNode
from koordinator.cluster.nodes.registration import persistently
from koordinator.cluster.nodes.simulated_kernel import SimulatedKernel
from koordinator.koordlet.report.devices.description import Inventory, describe_devices, device_patch, new_device
from koordinator.koordlet.report.node_topology.description import (
    TopologyFacts,
    describe,
    new_topology,
    says,
    topology_patch,
)
from koordinator.koordlet.report.node_topology.kubelet_cpus import kubelet_cpus
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType
from koordinator.node.cpu_topology import CPUBasicInfo, CPUTopology, read_basic_info, read_cpu_topology
from koordinator.node.errors import OddRowError
from koordinator.node.memory import NUMANodeMemory, read_numa_memory
from koordinator.node.nvml import GPU
from koordinator.node.pci import PciPlacement

logger = logging.getLogger(__name__)

_OF_ONE_SWITCH: Final = 2
"""GPUs below the same PCIe root."""
_DRIVER: Final = "580.0-simulated"
KUBELET_CPU_POLICY: Final[Mapping[str, Any]] = {"cpuManagerPolicy": "none"}
"""Of the KubeletConfiguration of simulated nodes."""


def inventory_of(node: SimulatedNode) -> Inventory:
    """The GPUs of a node, the same after each start; all on NUMA node 0, since a simulated node has no other."""
    gpus = node.group.gpus
    identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"{node.name}.simulated.koordinator.sh")
    cards = [
        GPU(
            index=number,
            uuid=f"GPU-{uuid.uuid5(identity, f'gpu-{number}')}",
            minor=number,
            memory=gpus.memory.value,
            model=gpus.model,
            bus_id=f"0000:{number // _OF_ONE_SWITCH:02x}:{number % _OF_ONE_SWITCH:02x}.0",
        )
        for number in range(gpus.count)
    ]
    placements = {
        card.bus_id: PciPlacement(card.bus_id, 0, f"pci0000:{number // _OF_ONE_SWITCH:02x}")
        for number, card in enumerate(cards)
    }
    return Inventory(gpus=cards, placements=placements, driver_version=_DRIVER)


@dataclass(frozen=True, slots=True)
class _Description:
    """What an object says of a node: as it is made, and as a merge patch of what is there, None if that says it."""

    new: Document
    change: Callable[[Any], Document | None]


@dataclass(frozen=True, slots=True)
class _Part:
    """Part of a node's hardware. ``describe`` gives None for a node that has nothing of it."""

    kind: Kind[Any]
    what: str
    describe: Callable[[SimulatedNode, Node], _Description | None]


class SimulatedHardware:
    """Writes the objects that describe each node, once; koordlet, where one runs, keeps them current after that."""

    def __init__(
        self,
        client: Client,
        find_node: Callable[[str], Node | None],
        *,
        clock: Clock,
        random: Random,
        concurrency: int,
    ) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(concurrency)
        self._find_node = find_node
        self._clock = clock
        self._random = random

    async def write(self, nodes: Sequence[SimulatedNode]) -> None:
        """Raises KubeError. Without a CustomResourceDefinition nodes do not have what it describes, which is said."""
        for part in (_Part(DEVICES, "GPUs", self._devices), _Part(NODE_RESOURCE_TOPOLOGIES, "known CPUs", _cpus)):
            described = [found for node in nodes if (found := self._described(part, node)) is not None]
            try:
                # The first alone: where its kind is not there, the others are not tried.
                for each in described[:1]:
                    await self._write_persistently(part.kind, *each)
                async with asyncio.TaskGroup() as group:
                    for each in described[1:]:
                        group.create_task(self._write_persistently(part.kind, *each))
            except ApiStatusError as error:
                if not error.is_not_found:
                    raise
                logger.warning(
                    "nodes have no %s, since the cluster has no CustomResourceDefinition %s: install it with: "
                    "koord manifests --only=crd | kubectl apply -f -, and start the nodes again",
                    part.what, f"{part.kind.plural}.{part.kind.group}",
                )  # fmt: skip
            else:
                if described:
                    logger.info("%d nodes have %s", len(described), part.what)

    def _devices(self, node: SimulatedNode, registered: Node) -> _Description | None:
        if not node.group.gpus.count:
            return None
        report = describe_devices(inventory_of(node), self._clock.now())
        return _Description(new_device(registered, report), lambda present: device_patch(present, report))

    def _described(self, part: _Part, node: SimulatedNode) -> tuple[Node, _Description] | None:
        registered = self._find_node(node.name)
        if registered is None:
            return None
        try:
            description = part.describe(node, registered)
        except KoordinatorError as error:
            logger.warning("node %s has no %s: %s", node.name, part.what, error)
            return None
        return None if description is None else (registered, description)

    async def _write_persistently(self, kind: Kind[Any], node: Node, description: _Description) -> None:
        what = f"the {kind.name} of {node.metadata.name}"
        write = partial(self._write, kind, node, description)
        async with self._slots:
            try:
                await persistently(write, what, self._clock, self._random)
            except ApiStatusError as error:
                if error.is_not_found:
                    raise
                logger.warning("%s is refused: %s", what, error)

    async def _write(self, kind: Kind[Any], node: Node, description: _Description) -> None:
        """Raises ApiStatusError with 404 where the kind is not there."""
        present = await self._created_or_present(kind, description.new)
        if present is None:
            return
        if node.metadata.uid not in {each.uid for each in present.metadata.owner_references}:
            # Of an earlier node of that name; a garbage collector may have been faster.
            await self._delete(kind, node.metadata.name)
            await self._client.create(kind, description.new)
        elif (patch := description.change(present)) is not None:
            await self._client.patch(kind, node.metadata.name, patch, PatchType.MERGE)

    async def _created_or_present(self, kind: Kind[Any], document: Document) -> Object | None:
        """What is there already; None once the object is made."""
        try:
            await self._client.create(kind, document)
        except ApiStatusError as error:
            if not error.is_already_exists:
                raise
        else:
            return None
        try:
            present: Object = await self._client.get(kind, document["metadata"]["name"])
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            # A garbage collector has just removed that of an earlier node.
            await self._client.create(kind, document)
            return None
        return present

    async def _delete(self, kind: Kind[Any], name: str) -> None:
        try:
            await self._client.delete(kind, name)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise


def _cpus(node: SimulatedNode, registered: Node) -> _Description:
    cpus, basic_info, memory = _machine(max(1, round(node.cpu)), round(node.memory))
    kubelet = kubelet_cpus(KUBELET_CPU_POLICY, cpus)
    topology = describe(TopologyFacts(cpus, basic_info, memory, registered, kubelet=kubelet))
    # Which pods have CPUs of their own is known to koordlet alone, once it runs: an object of an earlier run stays as
    # it is, unless the scenario has given the node other CPUs.
    before = topology.annotations[CPU_TOPOLOGY]

    def change(present: NodeResourceTopology) -> Document | None:
        same = says(present.metadata.annotations.get(CPU_TOPOLOGY), before)
        return None if same else topology_patch(present, topology)

    return _Description(new_topology(registered, topology), change)


@lru_cache(maxsize=64)
def _machine(cpus: int, memory: int) -> tuple[CPUTopology, CPUBasicInfo, tuple[NUMANodeMemory, ...]]:
    """What koordlet reads of a simulated kernel of this size, in cores and bytes."""

    def odd(row: OddRowError) -> None:
        raise row

    with TemporaryDirectory() as folder:
        host = SimulatedKernel(Path(folder), cpus, memory, 0.0).host
        topology = read_cpu_topology(host, odd)
        return topology, read_basic_info(host, topology), read_numa_memory(host, odd)
