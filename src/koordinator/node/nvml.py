"""NVIDIA GPUs, through the management library of their driver (NVML) and NVIDIA's own bindings for it.

The bindings, nvidia-ml-py, are an optional extra: they are imported when GPUs are first needed, since that takes 4 MiB,
and 15 where their bytecode has not been written.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from koordinator.node.errors import Unavailable
from koordinator.node.host import Host, exists
from koordinator.node.pci import pci_address

logger = logging.getLogger(__name__)

_ALL_SAMPLES: Final = 1024
"""A time in microseconds since 1970 that lies before every sample: all that the driver still has."""

_MOST_PERCENT: Final = 100
"""Some drivers fill samples with garbage (github.com/Syllo/nvtop, issue 110): one of more than this says nothing."""

_OF_APPLICATIONS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Xids of errors that a program has made: the GPU itself is as it was (docs.nvidia.com/deploy/xid-errors)."""
_LOST: Final = ("GpuIsLost", "GpuNotFound", "NotFound", "InvalidArgument", "ResetRequired", "Unknown")
"""Errors of a query that say that the GPU is not there any more, or of no use. The handle of a GPU that was taken out
is an invalid argument. Others, such as that a GPU does not support a query, say nothing of its health."""
_MOST_EVENTS: Final = 64
"""Of one poll: a driver that reports events without end must not stop the agent."""

_DRIVER: Final = "driver/nvidia/version"
"""Below /proc: what the kernel module says of itself."""
LIBRARY: Final = "libnvidia-ml.so.1"
"""The file name that NVIDIA's bindings load."""
_NEEDS_DRIVER: Final = "an NVIDIA GPU, and its driver"
_NO_DRIVER: Final = Unavailable("no NVIDIA driver is loaded", _NEEDS_DRIVER)
_NO_BINDINGS: Final = Unavailable("nvidia-ml-py is not installed", "pip install 'koordinator[nvidia]'")


@dataclass(frozen=True, slots=True)
class GPU:
    """One card, with what the driver reports of it."""

    index: int
    uuid: str
    minor: int
    memory: int | None
    """In bytes. None where the driver does not report it, as on machines whose GPU uses the memory of the CPUs."""
    model: str
    """Empty where it is not reported, as ``bus_id``."""
    bus_id: str
    """As sysfs names it: ``0000:3b:00.0``."""
    memory_problem: str = ""
    """Why ``memory`` is None."""


@dataclass(frozen=True, slots=True)
class GPUProcess:
    """What a process uses of a GPU: percent of its multiprocessors' time, and bytes."""

    pid: int
    gpu: GPU
    core_percent: int
    memory: int


@dataclass(frozen=True, slots=True)
class GPUFailure:
    """Why a GPU is not healthy: ``Xid79`` or ``GPULost``, and a sentence."""

    code: str
    message: str


class NVML:
    """The library, initialised; ``close`` it."""

    def __init__(self, library: Any) -> None:
        """``library`` is the module pynvml, on which nvmlInit was called."""
        self._library = library
        self._handles = self._open_all()
        self.driver_version = str(library.nvmlSystemGetDriverVersion())
        self._health: _Health | None = None
        self._unmeasured: dict[GPU, str] = {}
        """Why the processes of a GPU are unknown."""

    @property
    def gpus(self) -> tuple[GPU, ...]:
        """In the order of their indices; without those that did not respond when the library was opened."""
        return tuple(self._handles)

    def processes(self) -> Mapping[GPU, Sequence[GPUProcess]]:
        """Those that compute, and those that only hold memory, by GPU.

        A GPU for which the driver does not report them is left out, as one with MIG enabled always is: its usage is
        unknown, which is not 0.
        """
        found: dict[GPU, Sequence[GPUProcess]] = {}
        for gpu in self._handles:
            try:
                found[gpu] = tuple(self._processes(gpu))
            except self._library.NVMLError as error:
                self._note_unmeasured(gpu, str(error))
            else:
                self._unmeasured.pop(gpu, None)
        return found

    def failures(self) -> Mapping[GPU, GPUFailure]:
        """The GPUs that are not healthy: those of which the driver has reported a critical error since the first call,
        and those that are not listed, or do not respond, now.

        Does not wait. The driver never says that a critical error is over: who has repaired the GPU starts this program
        anew.
        """
        if self._health is None:
            self._health = _Health(self._library, self._handles)
        return self._health.poll()

    def close(self) -> None:
        if self._health is not None:
            self._health.close()
        self._library.nvmlShutdown()

    def _open_all(self) -> dict[GPU, Any]:
        """The handles of the GPUs that respond: one that has fallen off the bus must not cost the node the others."""
        handles: dict[GPU, Any] = {}
        for index in range(self._library.nvmlDeviceGetCount()):
            try:
                handle = self._library.nvmlDeviceGetHandleByIndex(index)
                handles[self._describe(index, handle)] = handle
            except self._library.NVMLError as error:
                logger.warning("GPU %d is left out until koordlet starts anew: NVML: %s", index, error)
        return handles

    def _processes(self, gpu: GPU) -> Iterator[GPUProcess]:
        running = _running_processes(self._library, self._handles[gpu])
        percents = self._core_percents(self._handles[gpu]) if running else {}
        for process in running:
            # Where the driver hides the memory of processes (in a virtual machine of some clouds), it says None.
            memory = int(process.usedGpuMemory or 0)
            yield GPUProcess(process.pid, gpu, percents.get(process.pid, 0), memory)

    def _core_percents(self, handle: Any) -> Mapping[int, int]:
        """By process; the driver has samples only of those that have computed of late."""
        try:
            samples = self._library.nvmlDeviceGetProcessUtilization(handle, _ALL_SAMPLES)
        except self._library.NVMLError_NotFound:
            return {}
        in_order = sorted(samples, key=lambda sample: int(sample.timeStamp))
        return {sample.pid: int(sample.smUtil) for sample in in_order if sample.smUtil <= _MOST_PERCENT}

    def _note_unmeasured(self, gpu: GPU, why: str) -> None:
        if self._unmeasured.get(gpu) != why:
            logger.warning("the usage of GPU %s is unknown: NVML: %s", gpu.uuid, why)
        self._unmeasured[gpu] = why

    def _describe(self, index: int, handle: Any) -> GPU:
        """Raises NVMLError for a GPU without a UUID or a minor number: pods could not be given it."""
        library = self._library
        uuid, minor = str(library.nvmlDeviceGetUUID(handle)), int(library.nvmlDeviceGetMinorNumber(handle))
        memory, problem = self._memory(uuid, handle)
        return GPU(
            index=index,
            uuid=uuid,
            minor=minor,
            memory=memory,
            model=self._text(uuid, "model", lambda: library.nvmlDeviceGetName(handle)),
            bus_id=pci_address(self._text(uuid, "PCI address", lambda: library.nvmlDeviceGetPciInfo(handle).busId)),
            memory_problem=problem,
        )

    def _memory(self, uuid: str, handle: Any) -> tuple[int | None, str]:
        """Bytes, or why they are unknown. Where the GPU uses the memory of the CPUs, some drivers report nothing,
        others 0, and others the memory of the machine; what they do not report is not made up here."""
        try:
            total = int(self._library.nvmlDeviceGetMemoryInfo(handle).total)
        except self._library.NVMLError as error:
            problem = f"NVML: {error}"
        else:
            if total > 0:
                return total, ""
            problem = "NVML: 0 bytes"
        logger.warning("the memory of GPU %s is unknown: %s", uuid, problem)
        return None, problem

    def _text(self, uuid: str, what: str, query: Callable[[], object]) -> str:
        try:
            return str(query())
        except self._library.NVMLError as error:
            logger.warning("the %s of GPU %s is unknown: NVML: %s", what, uuid, error)
            return ""


def _running_processes(library: Any, handle: Any) -> Sequence[Any]:
    """By the newest call that the driver has.

    The bindings' name without a version would raise what is no NVMLError where the driver is older than R510.
    """
    try:
        found: Sequence[Any] = library.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    except library.NVMLError_FunctionNotFound:
        found = library.nvmlDeviceGetComputeRunningProcesses_v2(handle)
    return found


class _Health:
    """Whether the GPUs respond, and the driver's events of critical errors (Xids): a GPU may be lost without one."""

    def __init__(self, library: Any, handles: Mapping[GPU, Any]) -> None:
        self._library = library
        self._handles = handles
        self._lost_errors = tuple(getattr(library, f"NVMLError_{name}") for name in _LOST)
        self._critical: dict[GPU, GPUFailure] = {}
        """For good."""
        self._lost: dict[GPU, GPUFailure] = {}
        """At the last poll."""
        self._unlisted_problem = ""
        self._events: Any = None
        try:
            self._events = library.nvmlEventSetCreate()
        except library.NVMLError as error:
            logger.warning("critical errors of GPUs are not noticed: %s", error)
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
        self._look_for_lost()
        return {**self._lost, **self._critical}

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
            logger.warning("critical errors of GPU %s are not noticed: %s", gpu.uuid, error)

    def _note(self, xid: int, device: Any) -> None:
        if xid in _OF_APPLICATIONS:
            return
        uuid = self._uuid_of(device)
        for gpu in self._handles:
            if gpu.uuid == uuid:
                self._fail(gpu, f"Xid{xid}", f"Xid error detected on device, error code: {xid}")
            elif (error := self._lost_error(gpu)) is not None:
                self._fail(gpu, f"Xid{xid}", f"failed to get device, error: {error}")

    def _uuid_of(self, device: Any) -> str | None:
        """None for a device that has fallen off the bus: it is then found by its missing response."""
        try:
            return str(self._library.nvmlDeviceGetUUID(device))
        except self._library.NVMLError:
            return None

    def _look_for_lost(self) -> None:
        unlisted = self._unlisted()
        lost: dict[GPU, GPUFailure] = {}
        for gpu in self._handles:
            error = self._lost_error(gpu)
            if error is not None:
                lost[gpu] = GPUFailure("GPULost", f"failed to query device, error: {error}")
            elif gpu in unlisted:
                lost[gpu] = unlisted[gpu]
        for gpu, failure in lost.items():
            if self._lost.get(gpu) != failure:
                logger.warning("GPU %s is not healthy: %s: %s", gpu.uuid, failure.code, failure.message)
        for gpu in self._lost.keys() - lost.keys():
            logger.info("GPU %s responds again", gpu.uuid)
        self._lost = lost

    def _lost_error(self, gpu: GPU) -> Exception | None:
        """Through the handle that was given for this GPU: nvml.h says of the calls for handles that they may fail since
        another GPU is lost. Of the answers the driver keeps some, so that one that it has to ask for is among them."""
        library, handle = self._library, self._handles[gpu]
        for query in (
            library.nvmlDeviceGetUUID,
            library.nvmlDeviceGetPciInfo,
            library.nvmlDeviceGetMemoryInfo,
            lambda handle: _running_processes(library, handle),
        ):
            try:
                query(handle)
            except self._lost_errors as error:
                found: Exception = error
                return found
            except library.NVMLError:
                continue
        return None

    def _unlisted(self) -> Mapping[GPU, GPUFailure]:
        """The GPUs that the driver does not count any more, or does not give a handle of though it does of others."""
        library = self._library
        listed: set[str] = set()
        errors: dict[int, Exception] = {}
        try:
            count = int(library.nvmlDeviceGetCount())
        except library.NVMLError as error:
            self._note_unlisted_problem(str(error))
            return {}
        self._note_unlisted_problem("")
        for index in range(count):
            try:
                listed.add(str(library.nvmlDeviceGetUUID(library.nvmlDeviceGetHandleByIndex(index))))
            except library.NVMLError as error:
                errors[index] = error
        missing = [gpu for gpu in self._handles if gpu.uuid not in listed]
        if not errors:
            return {gpu: GPUFailure("GPUNotListed", "the driver no longer lists this device") for gpu in missing}
        if not listed and count > 1:
            return {}
        return {
            gpu: GPUFailure("GPULost", f"failed to get device, error: {errors[gpu.index]}")
            for gpu in missing
            if isinstance(errors.get(gpu.index), self._lost_errors)
        }

    def _note_unlisted_problem(self, why: str) -> None:
        if why and self._unlisted_problem != why:
            logger.warning("the driver does not say which GPUs there are: NVML: %s", why)
        self._unlisted_problem = why

    def _fail(self, gpu: GPU, code: str, message: str) -> None:
        failure = GPUFailure(code, message)
        if self._critical.get(gpu) != failure:
            logger.warning("GPU %s is not healthy: %s: %s", gpu.uuid, code, message)
        self._critical[gpu] = failure


def open_nvml(host: Host, load: Callable[[], Any] = lambda: importlib.import_module("pynvml")) -> NVML | Unavailable:
    """The library, or why there is none. Without a driver the bindings are not even imported."""
    if not exists(f"{host.proc}/{_DRIVER}"):
        return _NO_DRIVER
    try:
        library = load()
    except ImportError:
        return _NO_BINDINGS
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        return _unusable(error)
    try:
        return NVML(library)
    except library.NVMLError as error:
        library.nvmlShutdown()
        return _unusable(error)


def _unusable(error: Exception) -> Unavailable:
    return Unavailable(f"NVML: {error}", f"{_NEEDS_DRIVER} where this program can see it")


def probe(
    host: Host,
    find: Callable[[str], object] = importlib.util.find_spec,
    load: Callable[[str], object] = ctypes.CDLL,
) -> Unavailable | None:
    """What keeps ``open_nvml`` from succeeding, as far as can be seen without initialising the library."""
    if not exists(f"{host.proc}/{_DRIVER}"):
        return _NO_DRIVER
    if find("pynvml") is None:
        return _NO_BINDINGS
    try:
        load(LIBRARY)
    except OSError:
        return Unavailable(f"{LIBRARY} is not installed", "the library of the driver where this program can see it")
    return None
