"""Keeps the node's Device object current."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from koordinator.api.kinds import DEVICES
from koordinator.base.clock import Clock
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.koordlet.report.devices.description import Inventory, describe_devices
from koordinator.koordlet.report.devices.device_patch import device_patch, new_device
from koordinator.koordlet.report.devices.xpu_files import XPUFiles
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType
from koordinator.node.errors import NodeError
from koordinator.node.host import Host
from koordinator.node.nvml import GPU, NVML
from koordinator.node.pci import PciBus, PciPlacement
from koordinator.node.rdma import read_rdma_devices

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeviceSources:
    """Where devices are looked for. With ``only_files`` GPUs count only if a file says so, even if there is none."""

    host: Host
    files: XPUFiles
    nvml: NVML | None = None
    with_rdma: bool = False
    only_files: bool = False

    def take(self) -> Inventory:
        """All that is there now."""
        xpus = self.files.read()
        gpus = self.nvml.gpus if self.nvml is not None and not (xpus or self.only_files) else ()
        return Inventory(
            xpus=xpus,
            gpus=gpus,
            failures=self.nvml.failures() if self.nvml is not None and gpus else {},
            placements=self._placements(gpus),
            driver_version=self.nvml.driver_version if self.nvml is not None else "",
            rdma=read_rdma_devices(self.host) if self.with_rdma else (),
        )

    def _placements(self, gpus: Sequence[GPU]) -> dict[str, PciPlacement]:
        bus = PciBus(f"{self.host.sys}/bus/pci/devices")
        placements = {}
        for gpu in gpus:
            with suppress(NodeError):
                placements[gpu.bus_id] = bus.placement(gpu.bus_id)
        return placements


class DeviceReporter:
    """Call ``report`` every few seconds. The states informer must follow the Device."""

    def __init__(
        self, client: Client, states: StatesInformer, take_inventory: Callable[[], Inventory], clock: Clock
    ) -> None:
        self._client = client
        self._states = states
        self._take_inventory = take_inventory
        self._clock = clock
        self._written_over = ""
        """The version of the object that was last written over; what was written is seen a moment later only."""
        self._said = SaidOnce(logger)

    async def report(self) -> None:
        """One round; errors are those of the API server."""
        node, present = self._states.node, self._states.device
        if node is None:
            return
        report = describe_devices(self._take_inventory(), self._clock.now())
        self._log(report.problems)
        if present is None:
            await self._create(new_device(node, report))
            return
        patch = device_patch(present, report)
        if patch is not None and present.metadata.resource_version != self._written_over:
            await self._patch(node.metadata.name, patch, present.metadata.resource_version)

    def _log(self, problems: Sequence[str]) -> None:
        with self._said.round():
            for problem in problems:
                self._said.say(f"a device that was found: {problem}")

    async def _create(self, document: dict[str, Any]) -> None:
        try:
            await self._client.create(DEVICES, document)
        except ApiStatusError as error:
            if not error.is_already_exists:
                raise
        else:
            logger.info("the Device is made, with %d devices", len(document["spec"]["devices"]))

    async def _patch(self, name: str, patch: dict[str, Any], version: str) -> None:
        try:
            await self._client.patch(DEVICES, name, patch, PatchType.MERGE)
        except ApiStatusError as error:
            if not error.is_not_found:
                raise
        else:
            logger.info("the Device is brought up to date: %s", ", ".join(sorted(patch)))
            self._written_over = version
