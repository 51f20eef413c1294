"""``/debug/pprof/``: profiles of the running program, for ``go tool pprof`` and other tools that read its format.

Paths, parameters and defaults are those of Go's net/http/pprof. There are no traces for a Python program, and nothing
that would correspond to Go's profiles of blocking, mutexes and created threads.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from koordinator.base.clock import Clock
from koordinator.base.profiling import HERTZ, CpuSampler, HeapWatch, Profile, Stack, Unit, running_stacks
from koordinator.kube.pages import PageError, Request, Response
from koordinator.kube.serving import HealthServer

T = TypeVar("T")
_BASE: Final = "/debug/pprof"
_CPU: Final = Unit("cpu", "nanoseconds")
_CPU_PERIOD: Final = 10**9 // HERTZ
_MOST_SECONDS: Final = 300
_NOSNIFF: Final = {"X-Content-Type-Options": "nosniff"}
_PAGES: Final = {
    "cmdline": "The command line of this program, its parts separated by NUL bytes.",
    "goroutine": "What every thread and every task is doing now; ?debug=1 for text.",
    "heap": "What was allocated in the next ?seconds=10 and is still held; the program is slower meanwhile.",
    "profile": "Where processor time goes in the next ?seconds=30.",
}


class ProfilePages:
    """``add_to`` a server before it starts. One per process, whose event loop must run in the main thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy = False

    def add_to(self, server: HealthServer) -> None:
        for path, handler in {
            _BASE: _redirect,
            f"{_BASE}/": _index,
            f"{_BASE}/cmdline": _command_line,
            f"{_BASE}/goroutine": self._stacks,
            f"{_BASE}/heap": self._heap,
            f"{_BASE}/profile": self._profile,
            f"{_BASE}/{{name:.+}}": _unknown,
        }.items():
            server.add_route(path, handler)

    async def _profile(self, request: Request) -> Response:
        seconds, taken_at, sampler = _seconds(request, 30), self._clock.now(), CpuSampler()
        stacks = await self._watched(sampler, seconds, sampler.stacks)
        samples = {stack: (count, count * _CPU_PERIOD) for stack, count in stacks.items()}
        units = (Unit("samples", "count"), _CPU)
        return _file("profile", Profile(units, samples, taken_at, seconds, _CPU, _CPU_PERIOD))

    async def _heap(self, request: Request) -> Response:
        seconds, taken_at, watch = _seconds(request, 10), self._clock.now(), HeapWatch()
        held = await self._watched(watch, seconds, watch.held)
        units = (Unit("inuse_objects", "count"), Unit("inuse_space", "bytes"))
        return _file("heap", Profile(units, held, taken_at, seconds, units[1], 1))

    async def _stacks(self, request: Request) -> Response:
        stacks = list(running_stacks())
        if request.query.get("debug", "0") != "0":
            return Response(text="\n".join(_as_text(title, stack) for title, stack in stacks), headers=_NOSNIFF)
        unit = Unit("goroutine", "count")
        samples = {stack: (count,) for stack, count in Counter(stack for _, stack in stacks).items()}
        return _file("goroutine", Profile((unit,), samples, self._clock.now(), 0, unit, 1))

    async def _watched(self, watch: AbstractContextManager[object], seconds: int, found: Callable[[], T]) -> T:
        """Return ``found()`` once ``watch`` was active for ``seconds``. One at a time: two would disturb each other."""
        if self._busy:
            raise PageError(500, "Could not enable profiling: another profile is being taken\n")
        self._busy = True
        try:
            with watch:
                await self._clock.sleep(seconds)
                return found()
        finally:
            self._busy = False


def _seconds(request: Request, default: int) -> int:
    text = request.query.get("seconds", "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= _MOST_SECONDS):
        raise PageError(400, f"seconds={text[:20]!r}: a whole number from 1 to {_MOST_SECONDS} is allowed\n")
    return int(text)


def _file(name: str, profile: Profile) -> Response:
    headers = {**_NOSNIFF, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(body=profile.encode(), content_type="application/octet-stream", headers=headers)


def _as_text(title: str, stack: Stack) -> str:
    return "".join([f"{title}:\n", *[f"  {place.function}\n    {place.file}:{place.line}\n" for place in stack]])


async def _redirect(request: Request) -> Response:
    return Response(status=302, headers={"Location": f"{_BASE}/"})


async def _index(request: Request) -> Response:
    rows = "".join(f'<tr><td><a href="{name}">{name}</a></td><td>{text}</td></tr>\n' for name, text in _PAGES.items())
    page = f"<html>\n<head><title>{_BASE}/</title></head>\n<body>\n<table>\n{rows}</table>\n</body>\n</html>\n"
    return Response(text=page, content_type="text/html; charset=utf-8", headers=_NOSNIFF)


async def _command_line(request: Request) -> Response:
    return Response(text="\0".join(sys.argv), headers=_NOSNIFF)


async def _unknown(request: Request) -> Response:
    text = f"Unknown profile {request.parameters['name'][:40]!r}: a Python program has {', '.join(_PAGES)}\n"
    raise PageError(404, text)
