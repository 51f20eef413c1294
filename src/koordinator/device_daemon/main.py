"""The program koord-device-daemon: looks for accelerators, writes the file, waits, and looks again."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from koordinator.base import logs
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.base.loops import Heartbeat, LoopMetrics
from koordinator.base.metrics import Metrics
from koordinator.base.program import Process, Run, greet, run_program
from koordinator.device_daemon.device_file import DeviceFile, DeviceFileError
from koordinator.device_daemon.discovery import VENDORS, Discovery, Inventory
from koordinator.device_daemon.machine import DiscoveryError, HostTools, Machine
from koordinator.device_daemon.options import Options, parse_options
from koordinator.kube.health import HealthChecks
from koordinator.kube.servers import Servers
from koordinator.node.pci import PciBus

_LOG = logging.getLogger(__name__)

_PROGRAM: Final = "koord-device-daemon"
_DEADLINE: Final = 600.0
"""Seconds of one look: each call of a vendor's tool ends after half a minute, and there is one for each card."""

_MISSED: Final = 2.0
"""How many looks in a row may fail before the daemon is not healthy."""


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run until a signal, or once. 0 when all went well, 1 otherwise, with one line on stderr."""
    given = sys.argv[1:] if arguments is None else arguments
    variables = os.environ if environment is None else environment

    def configure() -> Options:
        options = parse_options(given, variables)
        logs.configure(options.verbosity)
        greet(_PROGRAM, f"configuration {options.document()}", options.remarks)
        return options

    def prepare() -> Run:
        return partial(_run, configure(), configure)

    return run_program(_PROGRAM, prepare)


async def _run(options: Options, configure: Callable[[], Options], process: Process) -> None:
    machine = Machine(HostTools(options.host_root), PciBus(options.pci_folder), options.dev)
    heartbeat = LoopMetrics(process.clock, process.metrics).loop("discovery", _DEADLINE)
    daemon = Daemon(options, process.clock, Discovery(machine), heartbeat, DeviceMetrics(process.metrics))
    if options.oneshot:
        failed = await daemon.look_and_write()
        if failed:
            raise DiscoveryError(f"the devices of these vendors are not known: {', '.join(failed)}; the log says why")
        return
    hang_up = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, hang_up.set)
    loop.add_signal_handler(signal.SIGQUIT, process.stop.set)
    health = HealthChecks()
    # Not part of /livez: a daemon that is restarted takes its file away, and the node's devices with it.
    health.add("discovery", daemon.check, "readyz", "healthz")
    servers = Servers(process.metrics, process.clock)
    dispensable = "no metrics are served, see --metrics-addr" if options.metrics_dispensable else ""
    servers.add(options.metrics, health=health, dispensable=dispensable)
    servers.add_secure(options.secure, _PROGRAM, process, health)
    async with servers:
        await daemon.run(process.stop, hang_up, configure)


class DeviceMetrics:
    """What the last look has found, and how often a vendor's tool has failed."""

    def __init__(self, metrics: Metrics) -> None:
        self._devices = metrics.gauge(
            "koord_device_daemon_devices", "Devices in the file, by vendor and health", ("vendor", "healthy")
        )
        self._failures = metrics.counter(
            "koord_device_daemon_discovery_failures_total",
            "Looks in which the devices of a vendor could not be listed",
            ("vendor",),
        )
        for vendor in VENDORS:
            self._failures.labels(vendor.name)

    def seen(self, inventory: Inventory) -> None:
        """Count one look."""
        found = Counter((device.vendor, device.status is None or device.status.healthy) for device in inventory.devices)
        for vendor in VENDORS:
            for healthy in (True, False):
                self._devices.labels(vendor.name, str(healthy).lower()).set(found[vendor.name, healthy])
        for name in inventory.failed:
            self._failures.labels(name).inc()


class Daemon:
    """One node's devices, kept in the file."""

    def __init__(
        self, options: Options, clock: Clock, discovery: Discovery, heartbeat: Heartbeat, metrics: DeviceMetrics
    ) -> None:
        self._options = options
        self._clock = clock
        self._heartbeat = heartbeat
        self._discovery = discovery
        self._metrics = metrics
        self._file = DeviceFile(options.output)

    async def look_and_write(self) -> Sequence[str]:
        """The vendors whose devices could not be listed. Raises DeviceFileError."""
        inventory = await self._discovery.discover()
        if not inventory.devices:
            _LOG.warning("No prints generated from any source")
        self._metrics.seen(inventory)
        self._file.write(inventory.devices)
        return inventory.failed

    def check(self) -> str:
        """Health check: whether the file is as new as it should be."""
        age = self._heartbeat.seconds_since()
        if age is None:
            return "the devices have not been written yet"
        late = age > _MISSED * (self._options.sleep_interval + self._heartbeat.deadline)
        return f"the devices were last written {age:.0f}s ago" if late else ""

    async def run(self, stop: asyncio.Event, hang_up: asyncio.Event, configure: Callable[[], Options]) -> None:
        """Until ``stop``; ``hang_up`` reads the configuration anew. The file is removed at the end."""
        try:
            while not stop.is_set():
                await self._keep_writing_until(stop, hang_up)
                if hang_up.is_set():
                    hang_up.clear()
                    self._reconfigure(configure)
        finally:
            self._remove()

    async def _keep_writing_until(self, *events: asyncio.Event) -> None:
        """A look that is under way when one of ``events`` is set is broken off."""
        work = asyncio.create_task(self._keep_writing(), name="discovery")
        waiting = [asyncio.create_task(event.wait(), name="signal") for event in events]
        try:
            done, _ = await asyncio.wait([work, *waiting], return_when=asyncio.FIRST_COMPLETED)
            if work in done:
                work.result()
        finally:
            for task in (work, *waiting):
                task.cancel()
            await asyncio.gather(work, *waiting, return_exceptions=True)

    async def _keep_writing(self) -> None:
        while True:
            try:
                await self._heartbeat.iterate(self.look_and_write())
            except TimeoutError:
                _LOG.error("not all tools have ended after %g s: the file stays as it was", self._heartbeat.deadline)
            except DeviceFileError as error:
                _LOG.error("%s; trying again in %g s", error, self._options.sleep_interval)
            await self._clock.sleep(self._options.sleep_interval)

    def _reconfigure(self, configure: Callable[[], Options]) -> None:
        """A configuration that cannot be used leaves the one before in force."""
        try:
            options = configure()
        except KoordinatorError as error:
            _LOG.error("the configuration stays as it was: %s", error)
            return
        if options.output != self._options.output:
            self._remove()
        self._options, self._file = options, DeviceFile(options.output)

    def _remove(self) -> None:
        try:
            self._file.remove()
        except DeviceFileError as error:
            _LOG.warning("%s", error)
