"""The Devices of simulated nodes with GPUs, as koordlet with the gate Accelerators describes those of a real node."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Final

from koordinator.api.device import Device
from koordinator.api.kinds import DEVICES
from koordinator.api.node import Node
from koordinator.base.clock import Clock
from koordinator.cluster.nodes.node_objects import SimulatedNode
from koordinator.cluster.nodes.registration import persistently
from koordinator.koordlet.report.devices.description import Inventory, describe_devices, device_patch, new_device
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType
from koordinator.node.nvml import GPU
from koordinator.node.pci import PciPlacement

logger = logging.getLogger(__name__)

_OF_ONE_SWITCH: Final = 2
"""GPUs below the same PCIe root."""
_DRIVER: Final = "580.0-simulated"


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


class SimulatedDevices:
    """Writes one Device for each node that has GPUs, once; nothing changes it after that."""

    def __init__(
        self, client: Client, find_node: Callable[[str], Node | None], *, clock: Clock, random: Random
    ) -> None:
        self._client = client
        self._find_node = find_node
        self._clock = clock
        self._random = random

    async def write(self, nodes: Iterable[SimulatedNode]) -> None:
        """Raises KubeError. Without the CustomResourceDefinition nodes have no GPUs, which is said."""
        with_gpus = [node for node in nodes if node.group.gpus.count]
        try:
            for node in with_gpus:
                await persistently(partial(self._write, node), f"the Device of {node.name}", self._clock, self._random)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            logger.warning(
                "nodes have no GPUs, since the cluster has no CustomResourceDefinition %s: install it with: "
                "koord manifests --only=crd | kubectl apply -f -, and start the nodes again",
                f"{DEVICES.plural}.{DEVICES.group}",
            )
        else:
            if with_gpus:
                logger.info("%d nodes have GPUs", len(with_gpus))

    async def _write(self, node: SimulatedNode) -> None:
        """Raises ApiStatusError with 404 where the kind is not there."""
        registered = self._find_node(node.name)
        if registered is None:
            return
        report = describe_devices(inventory_of(node), self._clock.now())
        document = new_device(registered, report)
        present = await self._present(node.name)
        if present is not None and registered.metadata.uid not in {
            each.uid for each in present.metadata.owner_references
        }:
            # Of an earlier node of that name; a garbage collector may have been faster.
            await self._delete(node.name)
            present = None
        if present is None:
            await self._client.create(DEVICES, document)
        elif (patch := device_patch(present, report)) is not None:
            await self._client.patch(DEVICES, node.name, patch, PatchType.MERGE)

    async def _delete(self, name: str) -> None:
        try:
            await self._client.delete(DEVICES, name)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise

    async def _present(self, name: str) -> Device | None:
        try:
            return await self._client.get(DEVICES, name)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
            return None
