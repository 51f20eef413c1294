"""Core scheduling: cookies of the kernel's scheduler, by ``prctl(PR_SCHED_CORE)`` (Linux 5.14, CONFIG_SCHED_CORE).

Tasks with different cookies never run on the sibling threads of one core at the same time; tasks without a cookie (the
cookie 0) are a group of their own. The kernel makes cookies: one is given to a process anew (CREATE), or carried over
from a task that has it: the caller takes it itself (SHARE_FROM) and passes it on (SHARE_TO). So the task that carries
a cookie has it afterwards; here it is a thread that then ends. A process that is forked has its parent's
cookie. See Documentation/admin-guide/hw-vuln/core-scheduling.rst of the kernel.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Protocol, TypeVar

from koordinator.node.errors import FileError, NodeError, Unavailable
from koordinator.node.host import Host, exists, read_text

T = TypeVar("T")

PR_SCHED_CORE: Final = 62
GET: Final = 0
CREATE: Final = 1
SHARE_TO: Final = 2
SHARE_FROM: Final = 3
THREAD: Final = 0
THREAD_GROUP: Final = 1
SELF: Final = 0
"""As a process: the calling thread."""
NO_COOKIE: Final = 0
_NEEDS: Final = "Linux 5.14 with CONFIG_SCHED_CORE=y"


class CoreSchedulingError(NodeError):
    """The system call failed. ``code`` is its errno; 0 where the call itself succeeded without the expected effect."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Prctl(Protocol):
    """The system call: OSError if the kernel refuses."""

    def __call__(self, command: int, process: int, scope: int) -> int:
        """The cookie for GET, 0 for the others."""
        ...


def kernel_prctl(command: int, process: int, scope: int) -> int:
    """``prctl`` of this machine's kernel."""
    cookie = ctypes.c_ulonglong(NO_COOKIE)
    address = ctypes.addressof(cookie) if command == GET else 0
    arguments = [ctypes.c_ulong(each) for each in (command, process, scope, address)]
    if _library().prctl(PR_SCHED_CORE, *arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return cookie.value


@cache
def _library() -> ctypes.CDLL:
    # To find it takes ten times as long as a call.
    return ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Given:
    """A cookie, the processes that have it now, and why others that were to get it have not."""

    cookie: int
    processes: tuple[int, ...]
    refused: Mapping[int, str] = field(default_factory=dict)


class CoreScheduling:
    """The cookies of one machine. Processes are meant with all their threads."""

    def __init__(self, prctl: Prctl = kernel_prctl) -> None:
        self._prctl = prctl

    def unavailable(self) -> Unavailable | None:
        """None if the kernel can do it at the moment; nothing is changed."""
        try:
            self._call(GET, SELF, THREAD)
        except CoreSchedulingError as error:
            if error.code == errno.ENODEV:
                return Unavailable("the CPUs have no hyper-threads that are on", "simultaneous multithreading")
            return Unavailable(str(error), _NEEDS)
        return None

    def cookie(self, process: int) -> int | None:
        """Of a process; None if it has ended or may not be looked at."""
        try:
            return self._call(GET, process, THREAD)
        except CoreSchedulingError:
            return None

    def create(self, processes: Sequence[int]) -> Given:
        """A new cookie for all of them. CoreSchedulingError if none of them could get one."""
        refused: dict[int, str] = {}
        for number, first in enumerate(processes):
            try:
                self._call(CREATE, first, THREAD_GROUP)
                cookie = self._call(GET, first, THREAD)
            except CoreSchedulingError as error:
                refused[first] = str(error)
                continue
            others = [process for process in processes[number + 1 :] if process not in refused]
            given = self.share(first, cookie, others) if others else Given(cookie, ())
            return Given(cookie, (first, *given.processes), {**refused, **given.refused})
        raise CoreSchedulingError("; ".join(dict.fromkeys(refused.values())) or "there is no process")

    def share(self, source: int, cookie: int, processes: Sequence[int]) -> Given:
        """Give them the cookie that ``source`` has, which must be ``cookie``: else its number is another process's."""

        def carry() -> Given:
            self._call(SHARE_FROM, source, THREAD)
            self._expect(cookie, f"process {source}")
            return self._give(cookie, processes)

        return _on_own_thread(carry)

    def clear(self, processes: Sequence[int]) -> Given:
        """Take their cookies away. CoreSchedulingError if the agent has one itself, which it would give on."""

        def carry() -> Given:
            self._expect(NO_COOKIE, "the agent")
            return self._give(NO_COOKIE, processes)

        return _on_own_thread(carry)

    def _give(self, cookie: int, processes: Sequence[int]) -> Given:
        given: list[int] = []
        refused: dict[int, str] = {}
        for process in processes:
            try:
                self._call(SHARE_TO, process, THREAD_GROUP)
            except CoreSchedulingError as error:
                refused[process] = str(error)
            else:
                given.append(process)
        return Given(cookie, tuple(given), refused)

    def _expect(self, cookie: int, whose: str) -> None:
        found = self._call(GET, SELF, THREAD)
        if found != cookie:
            raise CoreSchedulingError(f"{whose} has the cookie {found}, not {cookie}")

    def _call(self, command: int, process: int, scope: int) -> int:
        try:
            return self._prctl(command, process, scope)
        except OSError as error:
            of = f" of process {process}" if process else ""
            raise CoreSchedulingError(f"prctl PR_SCHED_CORE{of}: {error.strerror}", error.errno or 0) from error


def probe(host: Host) -> str | Unavailable:
    """How the machine can do it: by which switch of the kernel, or at once. Nothing is changed."""
    if exists(f"{host.proc}/sys/kernel/sched_core"):
        return "sysctl kernel.sched_core"
    # Since Linux 5.13 it is the first of the two.
    for path in ("kernel/debug/sched/features", "kernel/debug/sched_features"):
        with suppress(FileError):
            if {"CORE_SCHED", "NO_CORE_SCHED"} & set(read_text(f"{host.sys}/{path}").split()):
                return "sched_features CORE_SCHED"
    return CoreScheduling().unavailable() or "prctl PR_SCHED_CORE"


def _on_own_thread(work: Callable[[], T]) -> T:
    """What a cookie is carried on is no thread that does anything else, neither before nor after."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="core scheduling") as thread:
        return thread.submit(work).result()
