"""What the daemon says of itself to kubelet's probes and to Prometheus."""

from __future__ import annotations

import asyncio
from pathlib import Path

from koordinator.base.clock import ManualClock
from koordinator.base.loops import LoopMetrics
from koordinator.base.metrics import Metrics
from koordinator.device_daemon.discovery import Discovery
from koordinator.device_daemon.machine import ToolError
from koordinator.device_daemon.main import Daemon, DeviceMetrics
from koordinator.device_daemon.options import Options
from tests.device_daemon.machines import FakeTools, add_pci_device, machine, mlu_tools


def test_a_daemon_is_ready_when_it_has_looked_and_as_long_as_it_looks(tmp_path: Path) -> None:
    clock = ManualClock()
    heartbeat = LoopMetrics(clock, Metrics()).loop("discovery", 600.0)
    options = Options(sleep_interval=900.0, output=str(tmp_path / "devices"))
    daemon = Daemon(options, clock, Discovery(machine(tmp_path, {})), heartbeat, DeviceMetrics(Metrics()))
    assert daemon.check() == "the devices have not been written yet"
    asyncio.run(heartbeat.iterate(daemon.look_and_write()))
    assert daemon.check() == ""
    asyncio.run(clock.advance(2 * (900.0 + 600.0)))
    assert daemon.check() == ""
    asyncio.run(clock.advance(1.0))
    assert daemon.check() == "the devices were last written 3001s ago"


def test_devices_and_failures_are_counted_by_vendor(tmp_path: Path) -> None:
    add_pci_device(tmp_path, "0000:40:00.0", "cabc", "0001")
    made = machine(tmp_path, mlu_tools())
    assert isinstance(made.tools, FakeTools)
    metrics = Metrics()
    seen = DeviceMetrics(metrics)
    discovery = Discovery(made)
    seen.seen(asyncio.run(discovery.discover()))
    made.tools.outputs.update(dict.fromkeys(made.tools.outputs, ToolError("no response")))
    seen.seen(asyncio.run(discovery.discover()))
    lines = set(metrics.exposition()[0].decode().splitlines())
    assert 'koord_device_daemon_devices{healthy="true",vendor="cambricon"} 2.0' in lines
    assert 'koord_device_daemon_devices{healthy="true",vendor="huawei"} 0.0' in lines
    assert 'koord_device_daemon_discovery_failures_total{vendor="cambricon"} 1.0' in lines
    assert 'koord_device_daemon_discovery_failures_total{vendor="huawei"} 0.0' in lines
