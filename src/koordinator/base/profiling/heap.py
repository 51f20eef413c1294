"""What a program has allocated and still holds, by the place that asked for it.

Python keeps no account of that unless it is told to, and a program that does is about half as fast: it is done for a
while, and tells of that while.
"""

from __future__ import annotations

import tracemalloc
from pathlib import PurePath
from types import TracebackType
from typing import Final, Self

from koordinator.base.profiling.profile import Frame, Stack

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
