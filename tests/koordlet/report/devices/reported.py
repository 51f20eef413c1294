"""What koordlet reports of devices that a file lists, as a report and through a reporter before an API server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from koordinator.api.codec import to_document
from koordinator.api.kinds import DEVICES, NODES
from koordinator.api.xpu_device_info import decode_devices
from koordinator.base.clock import ManualClock
from koordinator.base.listen_address import NOWHERE
from koordinator.base.metrics import Metrics
from koordinator.koordlet import features
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.options import Folders, Options
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.koordlet.report.devices.description import DeviceReport, Inventory, describe_devices
from koordinator.koordlet.report.devices.reporter import DeviceReporter
from tests.in_memory_api import InMemoryApi
from tests.node.machine import FakeMachine

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NODE = "node-1"


def xpu(minor: int, **more: Any) -> dict[str, Any]:
    return {
        "vendor": "huawei",
        "model": "Ascend-910B3",
        "uuid": f"npu-0-{minor}",
        "minor": str(minor),
        "resources": {"huawei.com/npu-core": "20", "gpu-memory": "65536Mi"},
        **more,
    }


def of_files(*documents: dict[str, Any]) -> DeviceReport:
    return describe_devices(Inventory(xpus=decode_devices(json.dumps(documents).encode())), NOW)


def device(report: DeviceReport, number: int = 0) -> dict[str, Any]:
    document = to_document(report.devices[number])
    assert isinstance(document, dict)
    return document


class Bench:
    def __init__(self, root: Path) -> None:
        self.machine = FakeMachine(root)
        self.clock = ManualClock()
        self.api = InMemoryApi(self.clock)
        self.api.put(NODES, {"metadata": {"name": NODE}})
        client = self.api.client()
        self.states = StatesInformer(
            client, NODE, clock=self.clock, random=Random(1), metrics=Metrics(), follow_device=True
        )
        folders = replace(Folders.under(root), devices=root / "xpus")
        options = Options(NODE, self.machine.host, NOWHERE, folders)
        options.features.set({features.RDMA_DEVICES: True})
        given = SimpleNamespace(client=client, clock=self.clock)
        context = SimpleNamespace(options=options, given=given, states=self.states)
        self.reporter = DeviceReporter(cast("AgentContext", context), None)

    def write(self, *documents: dict[str, Any]) -> None:
        self.machine.write("/xpus/devices.json", json.dumps(documents))

    async def rounds(self, count: int) -> None:
        for _ in range(count):
            await self.reporter.report()
            await self.clock.advance(3)

    @property
    def document(self) -> dict[str, Any]:
        found = self.api.found(DEVICES, NODE)
        assert found is not None
        return found

    def run(self, rounds: int = 3) -> None:
        """So many rounds, on what the machine has now."""

        async def story() -> None:
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(self.states.run())
                await self.clock.advance(1)
                await self.rounds(rounds)
                task.cancel()

        asyncio.run(story())
