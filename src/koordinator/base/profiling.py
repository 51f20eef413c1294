"""A profile, and its encoding as pprof's ``profile.proto`` (gzip), which pprof, Grafana and speedscope read.

The numbers of fields are those of https://github.com/google/pprof/blob/main/proto/profile.proto.
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
"""Of one stack; deeper ones lose what called the rest."""


class Frame(NamedTuple):
    """A place in the code that was running, or waiting."""

    function: str
    file: str
    line: int
    first_line: int
    """Where the function begins."""


Stack = tuple[Frame, ...]
"""Innermost first, at most MOST_FRAMES."""


class Place(NamedTuple):
    """What makes a Frame, at hardly any cost for who looks often."""

    module: str
    code: CodeType
    line: int | None
    """0 or None between two lines of code."""

    @property
    def frame(self) -> Frame:
        module, code, line = self
        # Tools leave out what stands between < and >, and show a name that is nothing else as unknown.
        function = f"{module}.{code.co_qualname}" if code.co_name != "<module>" else f"{module} (module)"
        return Frame(function, code.co_filename, line or code.co_firstlineno, code.co_firstlineno)


def place_of(frame: FrameType) -> Place:
    return Place(frame.f_globals.get("__name__", ""), frame.f_code, frame.f_lineno)


def places_from(frame: FrameType | None) -> tuple[Place, ...]:
    """``frame`` and what called it, innermost first, at most MOST_FRAMES."""
    places: list[Place] = []
    while frame is not None and len(places) < MOST_FRAMES:
        places.append(place_of(frame))
        frame = frame.f_back
    return tuple(places)


class Unit(NamedTuple):
    """What a value of each sample tells: ``("cpu", "nanoseconds")``."""

    kind: str
    unit: str


@dataclass(frozen=True, slots=True)
class Profile:
    """``samples`` has one value for each of ``units``; ``period`` is how far apart samples were, in ``period_unit``."""

    units: Sequence[Unit]
    samples: Mapping[Stack, Sequence[int]]
    taken_at: datetime
    seconds: float = 0.0
    period_unit: Unit | None = None
    period: int = 0

    def encode(self) -> bytes:
        """The file that a tool is given."""
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
    """What is written once and referred to by number: texts from 0 on, of which the first is empty; others from 1."""

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
    """A title and a stack for each thread, then for each task of the running event loop that waits for something."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"thread {names.get(ident, ident)}", tuple(place.frame for place in places_from(frame))
    current = asyncio.current_task()
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        if task is not current:
            yield f"task {task.get_name()}", _of_task(task)


def _of_task(task: asyncio.Task[Any]) -> Stack:
    """From the task's coroutine to what it waits for, through all that it awaits."""
    frames: list[Frame] = []
    awaited: Any = task.get_coro()
    while awaited is not None and len(frames) < MOST_FRAMES:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            frames.append(place_of(frame).frame)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return tuple(reversed(frames))


# Where a program spends its processor time, by looking at it a hundred times in each second of that.
#
# The operating system's timer counts the time of all threads, waiting left out; what the main thread does is looked at.
# Time within a library that is not Python's counts where it was called.


HERTZ: Final = 100


class CpuSampler:
    """``with sampler:`` samples; ``stacks`` tells how often each stack was seen. To be used in the main thread, one
    at a time, as it owns SIGPROF."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[Place, ...]] = Counter()
        self._sampling = False

    def __enter__(self) -> Self:
        self._sampling = True
        # It stays: a last signal that is on its way when the timer is stopped would otherwise end the process.
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, 1 / HERTZ, 1 / HERTZ)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._sampling = False

    def stacks(self) -> dict[Stack, int]:
        # A copy: another sample may be taken meanwhile.
        seen = list(self._seen.items())
        return {tuple(place.frame for place in places): count for places, count in seen}

    def _look(self, number: int, frame: FrameType | None) -> None:
        if self._sampling:
            self._seen[places_from(frame)] += 1


# What a program has allocated and still holds, by the place that asked for it.
#
# Python keeps no account of that unless it is told to, and a program that does is about half as fast: it is done for a
# while, and tells of that while.


_FRAMES: Final = 16


class HeapWatch:
    """``with watch:`` keeps the account; ``held`` is what was allocated since and is held, as (objects, bytes)."""

    def __init__(self) -> None:
        self._started_here = False

    def __enter__(self) -> Self:
        # Who started Python with PYTHONTRACEMALLOC has the account from the beginning, and keeps it.
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
        """Only within ``with``. Takes a while where much is held."""
        own = tracemalloc.Filter(inclusive=False, filename_pattern=tracemalloc.__file__)
        found = tracemalloc.take_snapshot().filter_traces([own]).statistics("traceback")
        return {_stack(each.traceback): (each.count, each.size) for each in found}


def _stack(traceback: tracemalloc.Traceback) -> Stack:
    # It knows files and lines, but no functions.
    return tuple(
        Frame(f"{PurePath(place.filename).name}:{place.lineno}", place.filename, place.lineno, place.lineno)
        for place in reversed(traceback)
    )
