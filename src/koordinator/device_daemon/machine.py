"""What finding devices needs of a machine: the tools of the vendors, the PCI bus, and device files."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from koordinator.api.xpu_device_info import XPUDeviceInfo, XPUTopology
from koordinator.base.errors import KoordinatorError
from koordinator.node.errors import NodeError
from koordinator.node.pci import UNKNOWN_NUMA_NODE, PciBus, pci_address

_OUTPUT_SHOWN: Final = 400
_MAX_OUTPUT_BYTES: Final = 4 << 20
SECONDS: Final = 30.0
"""How long a tool may take: one that calls a hung driver never returns."""


class DiscoveryError(KoordinatorError):
    """Devices, or one device, could not be listed; the text says what and why."""


class ToolError(DiscoveryError):
    """A tool is not there, failed, or took too long; ``output`` is what it printed."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class Tools(Protocol):
    """Runs the command-line tools of the machine."""

    async def run(self, tool: str, *arguments: str) -> str:
        """What it printed, on standard output and standard error together. Raises ToolError."""
        ...


class HostTools:
    """The tools, and with them their libraries, of the machine whose root folder is ``root``."""

    def __init__(self, root: str, seconds: float = SECONDS) -> None:
        """``root``: empty where this process sees the machine's own files."""
        self._prefix = ("chroot", root) if root else ()
        self._seconds = seconds

    async def run(self, tool: str, *arguments: str) -> str:
        command = (*self._prefix, tool, *arguments)
        shown = " ".join((tool, *arguments))
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                # Names are looked for in what it prints.
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            raise ToolError(f"{shown}: cannot be started: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._seconds):
                output = await _read(process, shown)
                status = await process.wait()
        except TimeoutError:
            raise ToolError(f"{shown}: no response within {self._seconds:g} s") from None
        finally:
            await _end(process)
        if status != 0:
            raise ToolError(f"{shown}: exit status {status}, output {output.strip()[:_OUTPUT_SHOWN]!r}", output)
        return output


async def _read(process: asyncio.subprocess.Process, shown: str) -> str:
    assert process.stdout is not None
    content = bytearray()
    while piece := await process.stdout.read(1 << 16):
        content += piece
        if len(content) > _MAX_OUTPUT_BYTES:
            raise ToolError(f"{shown}: printed more than {_MAX_OUTPUT_BYTES} bytes")
    return content.decode(errors="replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    """With what it may have started; one in uninterruptible sleep is left to the kernel."""
    assert process.stdout is not None
    if process.returncode is not None and process.stdout.at_eof():
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        async with asyncio.timeout(1.0):
            # What is left in the pipe keeps it open.
            while await process.stdout.read(1 << 16):
                pass
            await process.wait()
    except TimeoutError:
        return


@dataclass(frozen=True, slots=True)
class Machine:
    """One node."""

    tools: Tools
    pci: PciBus
    dev: str = "/dev"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, as a sentence, and with which devices, if that is known."""

    text: str
    minors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """The devices of one vendor, and what is wrong with others."""

    devices: Sequence[XPUDeviceInfo] = ()
    problems: Sequence[Problem] = ()
    boards: Mapping[str, str] = field(default_factory=dict)
    """The UUID of a device -> the board that it is on, of boards with several: these may have one PCI address."""


class Vendor(Protocol):
    """A kind of accelerator."""

    name: str
    """As the original calls what manages it."""
    pci_vendor: str
    other_products: frozenset[str]
    """Products of the vendor that are no accelerators."""

    async def devices(self, machine: Machine) -> Found:
        """All devices. Raises DiscoveryError when nothing can be said of any, NodeError for the machine's files."""
        ...


def placed(machine: Machine, bus_id: str) -> XPUTopology:
    """Where the device with this PCI address is; only the address when the machine does not know it."""
    try:
        place = machine.pci.placement(bus_id)
    except NodeError:
        return XPUTopology(socket_id="-1", node_id=str(UNKNOWN_NUMA_NODE), bus_id=pci_address(bus_id))
    return XPUTopology(socket_id="-1", node_id=str(place.numa_node), pcie_id=place.root, bus_id=place.address)
