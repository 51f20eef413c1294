"""Core scheduling as the kernel does it (kernel/sched/core_sched.c), simulated: most test machines lack it."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

from koordinator.node.core_scheduling import CREATE, GET, SELF, SHARE_FROM, SHARE_TO, THREAD, THREAD_GROUP


class CoreSchedulingKernel:
    """Call it as ``prctl``. ``cookies`` by process; a thread of the agent starts with ``agent_cookie``."""

    def __init__(self, *processes: int) -> None:
        self.cookies: dict[int, int] = dict.fromkeys(processes, 0)
        self.agent_cookie = 0
        self.forbidden: set[int] = set()
        """Processes into which the agent may not look (ptrace_may_access)."""
        self.code = 0
        """The error of every call, where the kernel cannot do it at all."""
        self.before: Callable[[int, int], None] = lambda _, __: None
        """Called with the command and the process before each call: what happens meanwhile."""
        self.calls: list[tuple[int, int]] = []
        self._next = 0x1000
        self._own = threading.local()

    def __call__(self, command: int, process: int, scope: int) -> int:
        self.before(command, process)
        self.calls.append((command, process))
        if self.code:
            raise OSError(self.code, os.strerror(self.code))
        if process not in self.cookies and process != SELF:
            raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        if process in self.forbidden:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        if scope != (THREAD if command in (GET, SHARE_FROM) else THREAD_GROUP):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        match command:
            case 0:
                return self.own_cookie if process == SELF else self.cookies[process]
            case 1:
                self._next += 0x10
                self.cookies[process] = self._next
            case 2:
                self.cookies[process] = self.own_cookie
            case 3:
                self._own.cookie = self.cookies[process]
            case _:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return 0

    @property
    def own_cookie(self) -> int:
        """Of the thread that asks."""
        return getattr(self._own, "cookie", self.agent_cookie)

    def changes(self) -> list[tuple[int, int]]:
        """The calls that were not GET."""
        return [(command, process) for command, process in self.calls if command in (CREATE, SHARE_TO, SHARE_FROM)]
