"""The program koord-device-daemon: looks for accelerators, writes the file, waits, and looks again."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import koordinator
from koordinator.base import logs
from koordinator.base.clock import Clock, SystemClock
from koordinator.base.errors import KoordinatorError
from koordinator.base.process import exit_status
from koordinator.device_daemon.device_file import DeviceFile, DeviceFileError
from koordinator.device_daemon.discovery import Discovery
from koordinator.device_daemon.machine import HostTools, Machine
from koordinator.device_daemon.options import Options, parse_options
from koordinator.node.pci import PciBus

_LOG = logging.getLogger(__name__)

_PROGRAM: Final = "koord-device-daemon"
_SIGNALS: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run until a signal, or once. 0 when all went well, 1 otherwise, with one line on stderr."""
    given = sys.argv[1:] if arguments is None else arguments
    variables = os.environ if environment is None else environment

    def configure() -> Options:
        options = parse_options(given, variables)
        logs.configure(options.verbosity)
        for remark in options.remarks:
            _LOG.warning("%s", remark)
        _LOG.info("Running with config: %s", options.document())
        return options

    try:
        options = configure()
        _LOG.info("%s %s (process %d)", _PROGRAM, koordinator.__version__, os.getpid())
        return asyncio.run(_run(options, configure))
    except (KoordinatorError, OSError) as error:
        return exit_status(_PROGRAM, error)


async def _run(options: Options, configure: Callable[[], Options]) -> int:
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, signals.put_nowait, number)
    machine = Machine(HostTools(options.host_root), PciBus(options.pci_folder), options.dev)
    daemon = Daemon(options, SystemClock(), Discovery(machine))
    if options.oneshot:
        return await daemon.once()
    await daemon.run(signals, configure)
    return 0


class Daemon:
    """One node's devices, kept in the file."""

    def __init__(self, options: Options, clock: Clock, discovery: Discovery) -> None:
        self._options = options
        self._clock = clock
        self._discovery = discovery
        self._file = DeviceFile(options.output)

    async def once(self) -> int:
        """Write the file and leave it; 1 when a vendor could not be asked. Raises DeviceFileError."""
        inventory = await self._discovery.look()
        if not inventory.devices:
            _LOG.warning("No prints generated from any source")
        self._file.write(inventory.devices)
        return 1 if inventory.failed else 0

    async def run(self, signals: asyncio.Queue[signal.Signals], configure: Callable[[], Options]) -> None:
        """Until a signal other than SIGHUP, which reads the configuration anew. The file is removed at the end."""
        try:
            while True:
                number = await self._until_signal(signals)
                if number is not signal.SIGHUP:
                    _LOG.info("received %s, shutting down", number.name)
                    return
                _LOG.info("received SIGHUP, reading the configuration anew")
                self._follow(configure)
        finally:
            self._remove(self._file)

    async def _until_signal(self, signals: asyncio.Queue[signal.Signals]) -> signal.Signals:
        """Looks and writes meanwhile; a look that is under way is broken off."""
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self._look_and_write_for_ever(), name="discovery")
            number = await signals.get()
            work.cancel()
        return number

    async def _look_and_write_for_ever(self) -> None:
        while True:
            try:
                await self.once()
            except DeviceFileError as error:
                _LOG.error("%s; trying again in %g s", error, self._options.sleep_interval)
            await self._clock.sleep(self._options.sleep_interval)

    def _follow(self, configure: Callable[[], Options]) -> None:
        """A configuration that cannot be used leaves the one before in force."""
        try:
            options = configure()
        except KoordinatorError as error:
            _LOG.error("the configuration stays as it was: %s", error)
            return
        if options.output != self._options.output:
            self._remove(self._file)
        self._options, self._file = options, DeviceFile(options.output)

    @staticmethod
    def _remove(file: DeviceFile) -> None:
        try:
            file.remove()
        except DeviceFileError as error:
            _LOG.warning("%s", error)
