"""Profiles, encoded as pprof's ``profile.proto`` (gzip), which pprof, Grafana and speedscope read.

The field numbers are those of https://github.com/google/pprof/blob/main/proto/profile.proto.
"""

from __future__ import annotations

import asyncio
import gzip
import signal
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, NamedTuple, Self

from koordinator.base.protobuf_wire import encode_message, encode_number, varint

MOST_FRAMES: Final = 128
"""Maximum depth of a stack; deeper stacks lose their outermost frames."""


class Frame(NamedTuple):
    """A location in the code that was running or waiting."""

    function: str
    file: str
    line: int
    first_line: int
    """The line at which the function begins."""


Stack = tuple[Frame, ...]
"""Innermost first, at most MOST_FRAMES."""


class Place(NamedTuple):
    """The data of a Frame in a form that is cheap to collect at every sample."""

    module: str
    code: CodeType
    line: int | None
    """0 or None for an instruction that belongs to no line."""

    @property
    def frame(self) -> Frame:
        module, code, line = self
        # pprof's tools strip what stands between < and >, and show a name that consists only of it as unknown.
        function = f"{module}.{code.co_qualname}" if code.co_name != "<module>" else f"{module} (module)"
        return Frame(function, code.co_filename, line or code.co_firstlineno, code.co_firstlineno)


def place_of(frame: FrameType) -> Place:
    return Place(frame.f_globals.get("__name__", ""), frame.f_code, frame.f_lineno)


def places_from(frame: FrameType | None) -> tuple[Place, ...]:
    """Return ``frame`` and its callers, innermost first, at most MOST_FRAMES."""
    places: list[Place] = []
    while frame is not None and len(places) < MOST_FRAMES:
        places.append(place_of(frame))
        frame = frame.f_back
    return tuple(places)


class Unit(NamedTuple):
    """The type and unit of a value of each sample: ``("cpu", "nanoseconds")``."""

    kind: str
    unit: str


@dataclass(frozen=True, slots=True)
class Profile:
    """``samples`` has one value for each of ``units``; ``period`` is the sampling interval, in ``period_unit``."""

    units: Sequence[Unit]
    samples: Mapping[Stack, Sequence[int]]
    taken_at: datetime
    seconds: float = 0.0
    period_unit: Unit | None = None
    period: int = 0

    def encode(self) -> bytes:
        """Return the profile as a gzip-compressed ``profile.proto``."""
        tables = _Tables()
        parts = [encode_message(1, tables.unit(unit)) for unit in self.units]
        for stack, values in self.samples.items():
            locations = [tables.location(frame) for frame in stack]
            parts.append(encode_message(2, _packed(1, locations) + _packed(2, values)))
        if self.period_unit is not None:
            parts += [encode_message(11, tables.unit(self.period_unit)), encode_number(12, self.period)]
        parts.append(encode_number(9, int(self.taken_at.timestamp() * 1e9)))
        parts.append(encode_number(10, int(self.seconds * 1e9)))
        return gzip.compress(b"".join([*parts, *tables.encoded()]), mtime=0)


class _Tables:
    """Tables of values that samples refer to by index: strings from 0, of which the first is empty; others from 1."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {"": 0}
        self._functions: dict[tuple[str, str, int], int] = {}
        self._locations: dict[Frame, int] = {}

    def unit(self, unit: Unit) -> bytes:
        return encode_number(1, self._text(unit.kind)) + encode_number(2, self._text(unit.unit))

    def location(self, frame: Frame) -> int:
        self._functions.setdefault((frame.function, frame.file, frame.first_line), len(self._functions) + 1)
        return self._locations.setdefault(frame, len(self._locations) + 1)

    def encoded(self) -> Iterable[bytes]:
        for frame, number in self._locations.items():
            function = self._functions[frame.function, frame.file, frame.first_line]
            yield encode_message(
                4,
                encode_number(1, number) + encode_message(4, encode_number(1, function) + encode_number(2, frame.line)),
            )
        for (name, file, first_line), number in self._functions.items():
            named = (
                encode_number(2, self._text(name))
                + encode_number(3, self._text(name))
                + encode_number(4, self._text(file))
            )
            yield encode_message(5, encode_number(1, number) + named + encode_number(5, first_line))
        for text in self._texts:
            yield encode_message(6, text.encode("utf-8", "replace"))

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))


def _packed(field: int, values: Iterable[int]) -> bytes:
    return encode_message(field, b"".join(map(varint, values)))


# What every thread and every task of a program is doing at this moment.


def running_stacks() -> Iterator[tuple[str, Stack]]:
    """Yield a title and a stack for each thread, then for each suspended task of the running event loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"thread {names.get(ident, ident)}", tuple(place.frame for place in places_from(frame))
    current = asyncio.current_task()
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        if task is not current:
            yield f"task {task.get_name()}", _of_task(task)


def _of_task(task: asyncio.Task[Any]) -> Stack:
    """Return the stack from the task's coroutine through everything that it awaits."""
    frames: list[Frame] = []
    awaited: Any = task.get_coro()
    while awaited is not None and len(frames) < MOST_FRAMES:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            frames.append(place_of(frame).frame)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return tuple(reversed(frames))


# Where a program spends its CPU time: a stack sample of the main thread after every 10 ms of CPU time.
#
# The operating system's timer counts the CPU time of all threads, without waiting; only the main thread is sampled.
# Time within a native library counts at the line that called it.


HERTZ: Final = 100


class CpuSampler:
    """``with sampler:`` takes samples; ``stacks`` returns how often each stack was seen. To be used in the main thread,
    one at a time, as it owns SIGPROF."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[Place, ...]] = Counter()
        self._sampling = False

    def __enter__(self) -> Self:
        self._sampling = True
        # The handler stays installed: a last signal that arrives after the timer is stopped would otherwise end the
        # process.
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, 1 / HERTZ, 1 / HERTZ)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._sampling = False

    def stacks(self) -> dict[Stack, int]:
        # A copy, because another sample may be taken during the iteration.
        seen = list(self._seen.items())
        return {tuple(place.frame for place in places): count for places, count in seen}

    def _look(self, number: int, frame: FrameType | None) -> None:
        if self._sampling:
            self._seen[places_from(frame)] += 1


# What a program has allocated and still holds, by the location of the allocation.
#
# Python traces allocations only on request, and a program that does so is about half as fast: they are traced for a
# limited time, and only allocations of that time are reported.


_FRAMES: Final = 16


class HeapWatch:
    """``with watch:`` traces allocations; ``held`` returns those that are still held, as (objects, bytes)."""

    def __init__(self) -> None:
        self._started_here = False

    def __enter__(self) -> Self:
        # If Python was started with PYTHONTRACEMALLOC, allocations are traced from the beginning, and tracing stays on.
        self._started_here = not tracemalloc.is_tracing()
        if self._started_here:
            tracemalloc.start(_FRAMES)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._started_here:
            tracemalloc.stop()

    def held(self) -> dict[Stack, tuple[int, int]]:
        """Return (objects, bytes) by stack; only within ``with``. Slow if many objects are held."""
        own = tracemalloc.Filter(inclusive=False, filename_pattern=tracemalloc.__file__)
        found = tracemalloc.take_snapshot().filter_traces([own]).statistics("traceback")
        return {_stack(each.traceback): (each.count, each.size) for each in found}


def _stack(traceback: tracemalloc.Traceback) -> Stack:
    # tracemalloc knows files and lines, but no functions.
    return tuple(
        Frame(f"{PurePath(place.filename).name}:{place.lineno}", place.filename, place.lineno, place.lineno)
        for place in reversed(traceback)
    )
