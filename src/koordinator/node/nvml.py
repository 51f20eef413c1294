"""NVIDIA GPUs, through the management library of their driver (NVML) and NVIDIA's own bindings for it.

The bindings, nvidia-ml-py, are an optional extra: they are imported when GPUs are asked for, since that takes 17 MiB.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from koordinator.node.errors import Unavailable
from koordinator.node.host import Host, exists

logger = logging.getLogger(__name__)

_ALL_SAMPLES: Final = 1024
"""A time in microseconds since 1970 that lies before every sample: all that the driver still has."""


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

    def close(self) -> None:
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
