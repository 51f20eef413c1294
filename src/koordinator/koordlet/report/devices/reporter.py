"""Keeps the node's Device object current."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from koordinator.api.kinds import DEVICES
from koordinator.base.loops import Loop
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet import features
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.report.devices.description import Inventory, describe_devices, device_patch, new_device
from koordinator.koordlet.report.devices.xpu_files import XPUFiles
from koordinator.koordlet.report.node_object import NodeObject
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
    """The states informer must follow the Device."""

    def __init__(self, context: AgentContext, nvml: NVML | None) -> None:
        self._options = options = context.options
        self._object = NodeObject(context.given.client, DEVICES)
        self._states = context.states
        self._clock = context.given.clock
        self._sources = DeviceSources(
            options.host,
            XPUFiles(str(options.folders.devices)),
            nvml,
            with_rdma=options.features.enabled(features.RDMA_DEVICES),
            only_files=options.only_device_files,
        )
        self._said = SaidOnce(logger)

    @property
    def loop(self) -> Loop:
        return Loop("devices", self.report, self._options.topology_interval, 30.0)

    async def report(self) -> None:
        """One round; errors are those of the API server."""
        node, present = self._states.node, self._states.device
        if node is None:
            return
        report = describe_devices(self._sources.take(), self._clock.now())
        with self._said.round():
            for problem in report.problems:
                self._said.say(f"a device that was found: {problem}")
        if present is None:
            await self._object.create(new_device(node, report))
        else:
            await self._object.patch(present.metadata, device_patch(present, report))
