"""Where a program spends its processor time, by looking at it a hundred times in each second of that.

The operating system's timer counts the time of all threads, waiting left out; what the main thread does is looked at.
Time within a library that is not Python's counts where it was called.
"""

from __future__ import annotations

import signal
from collections import Counter
from types import FrameType
from typing import Final, Self

from koordinator.base.profiling.profile import Place, Stack, places_from

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
