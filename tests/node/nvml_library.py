"""NVIDIA's module pynvml, as far as it is used, over GPUs that a test makes up."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace


@dataclass
class FakeCard:
    """``running`` is memory by process; ``samples`` are (process, time in microseconds, percent)."""

    running: dict[int, int | None] = field(default_factory=dict)
    samples: list[tuple[int, int, int]] = field(default_factory=list)
    is_lost: bool = False
    """It does not say who uses it."""
    is_off_the_bus: bool = False
    """Nothing can be requested of it any more."""
    is_listed: bool = True
    """The driver counts it, and gives a handle of it."""
    memory: int | None = 1000
    """None where the driver does not report it."""
    reports_errors: bool = True


class FakeNvmlLibrary:
    """A card's handle is its index."""

    class NVMLError(Exception):
        pass

    class NVMLError_FunctionNotFound(NVMLError):
        pass

    class NVMLError_NotFound(NVMLError):
        pass

    class NVMLError_GpuIsLost(NVMLError):
        pass

    class NVMLError_GpuNotFound(NVMLError):
        pass

    class NVMLError_InvalidArgument(NVMLError):
        pass

    class NVMLError_ResetRequired(NVMLError):
        pass

    class NVMLError_Unknown(NVMLError):
        pass

    class NVMLError_NotSupported(NVMLError):
        pass

    class NVMLError_Timeout(NVMLError):
        pass

    nvmlEventTypeXidCriticalError = 8

    def __init__(self, *cards: FakeCard, has_driver: bool = True) -> None:
        self.cards = cards
        self.events: list[tuple[int, int, int]] = []
        """(index of the card, type, number) of events that nobody has waited for yet."""
        self.event_sets = 0
        self._has_driver = has_driver
        self.is_open = False

    def nvmlInit(self) -> None:
        if not self._has_driver:
            raise self.NVMLError("Driver Not Loaded")
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86"

    def nvmlDeviceGetCount(self) -> int:
        return len(self._listed())

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return self._listed()[index]

    def _listed(self) -> list[int]:
        return [handle for handle, card in enumerate(self.cards) if card.is_listed]

    def _reach(self, handle: int) -> None:
        if self.cards[handle].is_off_the_bus:
            raise self.NVMLError_GpuIsLost("GPU is lost")

    def nvmlEventSetCreate(self) -> str:
        self.event_sets += 1
        return "set"

    def nvmlEventSetFree(self, events: str) -> None:
        self.event_sets -= 1

    def nvmlDeviceRegisterEvents(self, handle: int, types: int, events: str) -> None:
        if not self.cards[handle].reports_errors:
            raise self.NVMLError_NotSupported("Not Supported")
        self._reach(handle)

    def nvmlEventSetWait_v2(self, events: str, milliseconds: int) -> SimpleNamespace:
        if not self.events:
            raise self.NVMLError_Timeout("Timeout")
        device, kind, number = self.events.pop(0)
        return SimpleNamespace(device=device, eventType=kind, eventData=number)

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        self._reach(handle)
        return f"GPU-{handle}"

    def nvmlDeviceGetMinorNumber(self, handle: int) -> int:
        return handle

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        memory = self.cards[handle].memory
        if memory is None:
            raise self.NVMLError_NotSupported("Not Supported")
        return SimpleNamespace(total=memory)

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        self._reach(handle)
        return SimpleNamespace(busId=f"00000000:3B:0{handle}.0")

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: int) -> list[SimpleNamespace]:
        card = self.cards[handle]
        if card.is_lost:
            raise self.NVMLError_GpuIsLost("GPU is lost")
        return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in card.running.items()]

    def nvmlDeviceGetProcessUtilization(self, handle: int, since: int) -> list[SimpleNamespace]:
        samples = [sample for sample in self.cards[handle].samples if sample[1] > since]
        if not samples:
            raise self.NVMLError_NotFound("Not Found")
        return [SimpleNamespace(pid=pid, timeStamp=at, smUtil=percent) for pid, at, percent in samples]
