"""libnvidia-ml.so.1 over GPUs that a test makes up: the C functions that NVIDIA's own bindings call.

The signatures, structures and error numbers are those of nvml.h, written down here once more and not taken from the
bindings, so that the bindings and what we make of them are tested as they are.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, c_int, c_uint, c_ulonglong, c_void_p, memmove
from dataclasses import dataclass, field
from typing import Any

SUCCESS, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, DRIVER_NOT_LOADED, TIMEOUT, GPU_IS_LOST = 0, 3, 6, 7, 9, 10, 15
INVALID_ARGUMENT, RESET_REQUIRED, UNKNOWN = 2, 16, 999
HIDDEN = 0xFFFF_FFFF_FFFF_FFFF
"""The memory of a process that the driver does not tell."""
XID_CRITICAL_ERROR = 8
_NO_INSTANCE = 0xFFFF_FFFF
_FIRST_HANDLE = 0x1000
_EVENT_SET = 0xE000


@dataclass
class Card:
    """``running`` is bytes by process; ``samples`` are (process, time in microseconds, percent)."""

    uuid: str = "GPU-00000000-0000-0000-0000-000000000000"
    minor: int = 0
    name: str = "NVIDIA H200"
    bus_id: str = "00000000:3B:00.0"
    memory: int = 143771 << 20
    running: Mapping[int, int] = field(default_factory=dict)
    samples: Sequence[tuple[int, int, int]] = ()
    has_mig: bool = False
    is_lost: bool = False
    loses_handles: bool = False
    """Handles can be had of no card while this one is lost, as nvml.h says of some calls."""
    result: int = SUCCESS
    """Of every query that reaches the card."""
    memory_result: int = SUCCESS
    identity_result: int = SUCCESS
    """Of its name and its address."""
    is_listed: bool = True
    hides_events: bool = False


class CLibrary:
    """What ``ctypes.CDLL`` would give: an attribute for each function. A function in ``absent`` is not exported."""

    def __init__(
        self, cards: Sequence[Card], driver: str = "580.95.05", absent: Sequence[str] = (), init_result: int = SUCCESS
    ) -> None:
        self.cards = list(cards)
        self.events: list[tuple[int, int, int]] = []
        """(index of the card, type, number) of events that nobody has waited for yet."""
        self.initialised = 0
        self._driver = driver
        self._absent = absent
        self._init_result = init_result
        self._functions: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name in self._absent or name not in _SIGNATURES:
            raise AttributeError(f"undefined symbol: {name}")
        if name not in self._functions:
            prototype = ctypes.CFUNCTYPE(c_int, *_SIGNATURES[name])
            self._functions[name] = prototype(getattr(self, f"_{name}"))
        return self._functions[name]

    def _card(self, handle: int) -> Card:
        return self.cards[handle - _FIRST_HANDLE]

    def _nvmlInitWithFlags(self, flags: int) -> int:
        self.initialised += self._init_result == SUCCESS
        return self._init_result

    def _nvmlShutdown(self) -> int:
        self.initialised -= 1
        return SUCCESS

    def _nvmlSystemGetDriverVersion(self, target: int, size: int) -> int:
        return _put_text(target, self._driver, size)

    def _nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count[0] = len(self._listed())
        return SUCCESS

    def _listed(self) -> list[int]:
        return [number for number, card in enumerate(self.cards) if card.is_listed]

    def _nvmlDeviceGetHandleByIndex_v2(self, index: int, target: int) -> int:
        number = self._listed()[index]
        if self.cards[number].is_lost:
            return UNKNOWN
        if any(card.is_lost and card.loses_handles for card in self.cards):
            return GPU_IS_LOST
        return _put(target, "P", _FIRST_HANDLE + number)

    def _nvmlDeviceGetUUID(self, handle: int, target: int, size: int) -> int:
        return _put_text(target, self._card(handle).uuid, size)

    def _nvmlDeviceGetName(self, handle: int, target: int, size: int) -> int:
        card = self._card(handle)
        return card.identity_result or _put_text(target, card.name, size)

    def _nvmlDeviceGetMinorNumber(self, handle: int, target: int) -> int:
        return _put(target, "I", self._card(handle).minor)

    def _nvmlDeviceGetMemoryInfo(self, handle: int, target: int) -> int:
        card = self._card(handle)
        return card.result or card.memory_result or _put(target, "QQQ", card.memory, card.memory, 0)

    def _nvmlDeviceGetPciInfo_v3(self, handle: int, target: int) -> int:
        card = self._card(handle)
        if card.is_lost:
            return GPU_IS_LOST
        if card.identity_result:
            return card.identity_result
        legacy = card.bus_id.removeprefix("0000").encode()
        identifiers = (0x233510DE, 0x18BE10DE)
        return _put(target, "16sIIIII32s", legacy, *_numbers(card.bus_id), *identifiers, card.bus_id.encode())

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle: int, count: Any, target: int | None) -> int:
        card = self._card(handle)
        if card.is_lost:
            return GPU_IS_LOST
        if count[0] < len(card.running):
            count[0] = len(card.running)
            return INSUFFICIENT_SIZE
        count[0] = len(card.running)
        entries = [struct.pack("I4xQII", *entry, _NO_INSTANCE, _NO_INSTANCE) for entry in card.running.items()]
        return _put_bytes(target, entries)

    _nvmlDeviceGetComputeRunningProcesses_v2 = _nvmlDeviceGetComputeRunningProcesses_v3

    def _nvmlDeviceGetProcessUtilization(self, handle: int, target: int | None, count: Any, since: int) -> int:
        card = self._card(handle)
        if card.has_mig:
            return NOT_SUPPORTED
        samples = [sample for sample in card.samples if sample[1] > since]
        if not samples:
            return NOT_FOUND
        if count[0] < len(samples):
            count[0] = len(samples)
            return INSUFFICIENT_SIZE
        count[0] = len(samples)
        return _put_bytes(target, [struct.pack("I4xQIIII", *sample, 0, 0, 0) for sample in samples])

    def _nvmlEventSetCreate(self, target: int) -> int:
        return _put(target, "P", _EVENT_SET)

    def _nvmlEventSetFree(self, events: int) -> int:
        return SUCCESS

    def _nvmlDeviceRegisterEvents(self, handle: int, types: int, events: int) -> int:
        return NOT_SUPPORTED if self._card(handle).hides_events else SUCCESS

    def _nvmlEventSetWait_v2(self, events: int, target: int, milliseconds: int) -> int:
        if not self.events:
            return TIMEOUT
        index, kind, number = self.events.pop(0)
        return _put(target, "PQQII", _FIRST_HANDLE + index, kind, number, _NO_INSTANCE, _NO_INSTANCE)


def _numbers(bus_id: str) -> list[int]:
    """Domain, bus and device; GPUs have one function."""
    return [int(part, 16) for part in bus_id.rpartition(".")[0].split(":")]


def _put(target: int, form: str, *values: Any) -> int:
    return _put_bytes(target, [struct.pack(form, *values)])


def _put_text(target: int, text: str, size: int) -> int:
    content = text.encode() + b"\0"
    return INSUFFICIENT_SIZE if len(content) > size else _put_bytes(target, [content])


def _put_bytes(target: int | None, parts: Sequence[bytes]) -> int:
    content = b"".join(parts)
    if content:
        assert target is not None
        memmove(target, content, len(content))
    return SUCCESS


_COUNT = POINTER(c_uint)
_HANDLE = _SET = _TARGET = c_void_p
_SIGNATURES: Mapping[str, tuple[Any, ...]] = {
    "nvmlInitWithFlags": (c_uint,),
    "nvmlShutdown": (),
    "nvmlSystemGetDriverVersion": (_TARGET, c_uint),
    "nvmlDeviceGetCount_v2": (_COUNT,),
    "nvmlDeviceGetHandleByIndex_v2": (c_uint, _TARGET),
    "nvmlDeviceGetUUID": (_HANDLE, _TARGET, c_uint),
    "nvmlDeviceGetName": (_HANDLE, _TARGET, c_uint),
    "nvmlDeviceGetMinorNumber": (_HANDLE, _TARGET),
    "nvmlDeviceGetMemoryInfo": (_HANDLE, _TARGET),
    "nvmlDeviceGetPciInfo_v3": (_HANDLE, _TARGET),
    "nvmlDeviceGetComputeRunningProcesses_v2": (_HANDLE, _COUNT, _TARGET),
    "nvmlDeviceGetComputeRunningProcesses_v3": (_HANDLE, _COUNT, _TARGET),
    "nvmlDeviceGetProcessUtilization": (_HANDLE, _TARGET, _COUNT, c_ulonglong),
    "nvmlEventSetCreate": (_TARGET,),
    "nvmlEventSetFree": (_SET,),
    "nvmlDeviceRegisterEvents": (_HANDLE, c_ulonglong, _SET),
    "nvmlEventSetWait_v2": (_SET, _TARGET, c_uint),
}


def bindings_over(library: CLibrary, pynvml: Any, setattr_: Callable[[Any, str, Any], None]) -> Any:
    """NVIDIA's bindings, as though they had loaded ``library``; ``setattr_`` is that of pytest's monkeypatch."""
    setattr_(pynvml, "nvmlLib", library)
    setattr_(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return pynvml
