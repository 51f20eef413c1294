"""Cycles and instructions of the tasks of a cgroup, counted by the CPUs themselves (``perf_event_open``)."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from koordinator.node.errors import NodeError, Unavailable
from koordinator.node.host import Host, read_optional_integer

_SYSCALL_NUMBERS: Final = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_FLAG_PID_CGROUP: Final = 1 << 2
_FLAG_CLOSE_ON_EXEC: Final = 1 << 3
_ATTRIBUTE_SIZE: Final = 64
"""PERF_ATTR_SIZE_VER0: all that counting needs, and what every kernel with perf events takes."""
_INHERIT: Final = 1 << 1
_READ_TIMES: Final = 0b11  # PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING
_READING: Final = struct.Struct("QQQ")


@dataclass(frozen=True, slots=True)
class PerfEvent:
    """A kind of event in the kernel's numbers."""

    type: int
    config: int


CYCLES: Final = PerfEvent(0, 0)
INSTRUCTIONS: Final = PerfEvent(0, 1)
TASK_CLOCK: Final = PerfEvent(1, 1)
"""Nanoseconds on a CPU, which every machine can count: it has no need of the hardware."""


class PerfEventError(NodeError):
    """The kernel refused to count; ``code`` is its errno."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"perf_event_open of {what}: {os.strerror(code)}")
        self.code = code


class CgroupCounter:
    """Counts events of the tasks of one cgroup on all given CPUs, from its making until ``close``.

    ``folder`` is the cgroup's: below the controller perf_event on version 1. Use it as a context manager: each event
    takes one file descriptor for each CPU.
    """

    def __init__(self, folder: str, events: Iterable[PerfEvent], cpus: Iterable[int]) -> None:
        """PerfEventError if the kernel refuses; nothing stays open then."""
        self._descriptors: dict[PerfEvent, list[int]] = {}
        cpus = tuple(cpus)
        try:
            group = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise PerfEventError(error.errno or errno.EINVAL, folder) from error
        try:
            for event in events:
                opened = self._descriptors.setdefault(event, [])
                for cpu in cpus:
                    opened.append(_open(event, group, cpu, _FLAG_PID_CGROUP, folder))
        except PerfEventError:
            self.close()
            raise
        finally:
            os.close(group)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def read(self) -> dict[PerfEvent, int]:
        """Events since the start. What a CPU missed because it had too few counters is made up in proportion.

        PerfEventError if the kernel has given a counter up, as it does when a CPU goes offline."""
        return {event: sum(map(_scaled, opened)) for event, opened in self._descriptors.items()}

    def close(self) -> None:
        for opened in self._descriptors.values():
            while opened:
                os.close(opened.pop())


def probe(host: Host) -> Unavailable | None:
    """None if this process may count cycles and instructions here."""
    for event, name in ((CYCLES, "cycles"), (INSTRUCTIONS, "instructions")):
        try:
            # Of this process itself, which needs the least rights.
            os.close(_open(event, 0, -1, 0, name))
        except PerfEventError as error:
            if error.code in (errno.EACCES, errno.EPERM):
                level = read_optional_integer(f"{host.proc}/sys/kernel/perf_event_paranoid")
                return Unavailable(str(error), f"the privilege CAP_PERFMON (kernel.perf_event_paranoid is {level})")
            return Unavailable(str(error), "hardware counters: a machine of metal, or a hypervisor that passes them on")
    return None


def _open(event: PerfEvent, pid: int, cpu: int, flags: int, what: str) -> int:
    number = _SYSCALL_NUMBERS.get(os.uname().machine)
    if number is None:
        raise PerfEventError(errno.ENOSYS, f"{what} on {os.uname().machine}")
    # struct perf_event_attr: type, size, config, sample_period, sample_type, read_format, then the bits, then zeros.
    attributes = struct.pack("IIQQQQQ", event.type, _ATTRIBUTE_SIZE, event.config, 0, 0, _READ_TIMES, _INHERIT)
    buffer = ctypes.create_string_buffer(attributes.ljust(_ATTRIBUTE_SIZE, b"\0"), _ATTRIBUTE_SIZE)
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    descriptor = int(
        syscall(
            ctypes.c_long(number),
            buffer,
            ctypes.c_int(pid),
            ctypes.c_int(cpu),
            ctypes.c_int(-1),
            ctypes.c_ulong(flags | _FLAG_CLOSE_ON_EXEC),
        )
    )
    if descriptor < 0:
        raise PerfEventError(ctypes.get_errno(), what)
    return descriptor


def _scaled(descriptor: int) -> int:
    try:
        content = os.read(descriptor, _READING.size)
    except OSError as error:
        raise PerfEventError(error.errno or errno.EIO, "a counter that is read") from error
    if len(content) != _READING.size:
        # What has no counter any more is at its end.
        raise PerfEventError(errno.ENODEV, "a counter that is read")
    value, enabled, running = _READING.unpack(content)
    return int(value * enabled / running) if running and enabled else int(value)
