"""NVIDIA GPUs, through the management library of their driver (NVML) and NVIDIA's own bindings for it.

The bindings, nvidia-ml-py, are an optional extra: they are imported when GPUs are asked for, since that takes 17 MiB.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from koordinator.node.errors import Unavailable
from koordinator.node.host import Host, exists

logger = logging.getLogger(__name__)

_ALL_SAMPLES: Final = 1024
"""A time in microseconds since 1970 that lies before every sample: all that the driver still has."""

_OF_APPLICATIONS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Xids of errors that a program has made: the GPU itself is as it was (docs.nvidia.com/deploy/xid-errors)."""
_MOST_EVENTS: Final = 64
"""Of one poll: a driver that never stops telling must not stop the agent."""


@dataclass(frozen=True, slots=True)
class GPU:
    """One card. ``memory`` is in bytes; ``bus_id`` as sysfs names it: ``0000:3b:00.0``."""

    index: int
    uuid: str
    minor: int
    memory: int
    model: str
    bus_id: str


@dataclass(frozen=True, slots=True)
class GPUProcess:
    """What a process uses of a GPU: percent of its multiprocessors' time, and bytes."""

    pid: int
    gpu: GPU
    core_percent: int
    memory: int


@dataclass(frozen=True, slots=True)
class GPUFailure:
    """Why a GPU is not healthy: ``Xid79``, and a sentence."""

    code: str
    message: str


class NVML:
    """The library, initialised; ``close`` it."""

    def __init__(self, library: Any) -> None:
        """``library`` is the module pynvml, on which nvmlInit was called."""
        self._library = library
        self._handles: dict[GPU, Any] = {}
        for index in range(library.nvmlDeviceGetCount()):
            handle = library.nvmlDeviceGetHandleByIndex(index)
            self._handles[self._describe(index, handle)] = handle
        self.driver_version = str(library.nvmlSystemGetDriverVersion())
        self._health: _Health | None = None

    @property
    def gpus(self) -> tuple[GPU, ...]:
        """In the order of their indices."""
        return tuple(self._handles)

    def processes(self) -> tuple[GPUProcess, ...]:
        """Those that compute, but those of which the driver has no utilisation. A GPU that does not answer has none."""
        found: list[GPUProcess] = []
        for gpu in self._handles:
            try:
                found.extend(self._processes(gpu))
            except self._library.NVMLError as error:
                logger.debug("GPU %s: %s", gpu.uuid, error)
        return tuple(found)

    def failures(self) -> Mapping[GPU, GPUFailure]:
        """The GPUs that are not healthy, by the critical errors that the driver has told since this was first asked.

        Does not wait. The driver never says that a GPU is well again: who has repaired it starts this program anew.
        """
        if self._health is None:
            self._health = _Health(self._library, self._handles)
        return self._health.poll()

    def close(self) -> None:
        if self._health is not None:
            self._health.close()
        self._library.nvmlShutdown()

    def _processes(self, gpu: GPU) -> Iterator[GPUProcess]:
        handle = self._handles[gpu]
        running = self._library.nvmlDeviceGetComputeRunningProcesses(handle)
        if not running:
            return
        try:
            samples = self._library.nvmlDeviceGetProcessUtilization(handle, _ALL_SAMPLES)
        except self._library.NVMLError_NotFound:
            # Nothing has run since the driver began to keep samples.
            return
        latest = {sample.pid: sample for sample in sorted(samples, key=lambda sample: int(sample.timeStamp))}
        for process in running:
            sample = latest.get(process.pid)
            if sample is not None:
                # Where the driver hides the memory of processes (in a virtual machine of some clouds), it says None.
                yield GPUProcess(process.pid, gpu, int(sample.smUtil), int(process.usedGpuMemory or 0))

    def _describe(self, index: int, handle: Any) -> GPU:
        library = self._library
        return GPU(
            index=index,
            uuid=str(library.nvmlDeviceGetUUID(handle)),
            minor=int(library.nvmlDeviceGetMinorNumber(handle)),
            memory=int(library.nvmlDeviceGetMemoryInfo(handle).total),
            model=str(library.nvmlDeviceGetName(handle)),
            bus_id=_sysfs_bus_id(str(library.nvmlDeviceGetPciInfo(handle).busId)),
        )


class _Health:
    """The driver's events of critical errors (Xids)."""

    def __init__(self, library: Any, handles: Mapping[GPU, Any]) -> None:
        self._library = library
        self._gpus = tuple(handles)
        self._failures: dict[GPU, GPUFailure] = {}
        self._events: Any = None
        try:
            self._events = library.nvmlEventSetCreate()
        except library.NVMLError as error:
            logger.warning("errors of GPUs are not noticed: %s", error)
            return
        for gpu, handle in handles.items():
            self._register(gpu, handle)

    def poll(self) -> Mapping[GPU, GPUFailure]:
        for _ in range(_MOST_EVENTS if self._events is not None else 0):
            try:
                event = self._library.nvmlEventSetWait_v2(self._events, 0)
            except self._library.NVMLError_Timeout:
                break
            except self._library.NVMLError as error:
                logger.debug("events of GPUs: %s", error)
                break
            if int(event.eventType) == self._library.nvmlEventTypeXidCriticalError:
                self._note(int(event.eventData), event.device)
        return dict(self._failures)

    def close(self) -> None:
        if self._events is not None:
            self._library.nvmlEventSetFree(self._events)

    def _register(self, gpu: GPU, handle: Any) -> None:
        library = self._library
        try:
            library.nvmlDeviceRegisterEvents(handle, library.nvmlEventTypeXidCriticalError, self._events)
        except library.NVMLError_NotSupported:
            self._fail(gpu, "DeviceHealthCheckNotSupported", "device does not support health checking")
        except library.NVMLError as error:
            logger.warning("errors of GPU %s are not noticed: %s", gpu.uuid, error)

    def _note(self, xid: int, device: Any) -> None:
        if xid in _OF_APPLICATIONS:
            return
        address = self._address_of(device)
        for gpu in self._gpus:
            if gpu.bus_id == address:
                self._fail(gpu, f"Xid{xid}", f"Xid error detected on device, error code: {xid}")
            elif (error := self._lost(gpu)) is not None:
                self._fail(gpu, f"Xid{xid}", f"failed to get device, error: {error}")

    def _address_of(self, device: Any) -> str | None:
        """None for a device that has fallen off the bus: it is then found by not answering."""
        try:
            return _sysfs_bus_id(str(self._library.nvmlDeviceGetPciInfo(device).busId))
        except self._library.NVMLError:
            return None

    def _lost(self, gpu: GPU) -> Exception | None:
        try:
            self._library.nvmlDeviceGetUUID(self._library.nvmlDeviceGetHandleByPciBusId(gpu.bus_id.encode()))
        except self._library.NVMLError as error:
            found: Exception = error
            return found
        return None

    def _fail(self, gpu: GPU, code: str, message: str) -> None:
        failure = GPUFailure(code, message)
        if self._failures.get(gpu) != failure:
            logger.warning("GPU %s is not healthy: %s: %s", gpu.uuid, code, message)
        self._failures[gpu] = failure


def open_nvml(host: Host, load: Callable[[], Any] = lambda: importlib.import_module("pynvml")) -> NVML | Unavailable:
    """The library, or why there is none. Without a driver the bindings are not even imported."""
    if not exists(f"{host.proc}/driver/nvidia/version"):
        return Unavailable("no NVIDIA driver is loaded", "an NVIDIA GPU, and its driver")
    try:
        library = load()
    except ImportError:
        return Unavailable("nvidia-ml-py is not installed", "pip install 'koordinator[nvidia]'")
    try:
        library.nvmlInit()
        return NVML(library)
    except library.NVMLError as error:
        return Unavailable(f"NVML: {error}", "an NVIDIA GPU, and its driver where this program can see it")


def _sysfs_bus_id(text: str) -> str:
    """NVML writes the domain with eight digits and in capitals."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"
