"""What programs read beside the API server's objects, each as one call: broken content comes to an error of ours, or
to what can be read of it. What anything else raises, or what takes a program for long, is a fault."""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from google.protobuf.message import DecodeError

from koordinator.base.errors import KoordinatorError
from tests.real_world.garbage import Garbage

_MOST_SECONDS: Final = 10.0
"""Of CPU, which what is read in milliseconds never takes."""
_MOST_KIB: Final = 400 << 10
_SHOWN: Final = 2000
_REFUSALS: Final = (KoordinatorError, DecodeError)
"""The second is what the callers of gRPC and ttrpc methods make an error of."""


class Stall(Exception):
    """A program is busy with one broken thing for ever, or takes all memory for it."""


@dataclass(frozen=True)
class Reading:
    """``make`` draws broken content; ``read`` is the program's."""

    make: Callable[[Random, Garbage], bytes]
    read: Callable[[bytes], object]


def survive(name: str, reading: Reading, seeds: range) -> int:
    """Read what the seeds make; how much of it was refused. AssertionError names the first that is a fault."""
    refused = 0
    with bounded():
        for seed in seeds:
            random = Random(seed)
            content = reading.make(random, Garbage(random, ("good", "broken", "default")))
            try:
                reading.read(content)
            except _REFUSALS as error:
                if not str(error):
                    raise AssertionError(f"{name}, seed {seed}: an error without a text: {error!r}") from error
                refused += 1
            except Exception as error:
                shown = content[:_SHOWN]
                raise AssertionError(f"{name}, seed {seed}: {type(error).__name__}: {error}: {shown!r}") from error
            _renew()
    return refused


@contextmanager
def bounded() -> Iterator[None]:
    """A bound for the CPU and the memory that a case may take; the test's process has no other use for its timer."""

    def stalled(*_: object) -> None:
        raise Stall(f"it has taken {_MOST_SECONDS:g} seconds of CPU")

    before, held = signal.signal(signal.SIGVTALRM, stalled), _peak_kib()
    _renew()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert _peak_kib() - held < _MOST_KIB, f"{(_peak_kib() - held) >> 10} MiB were taken"


def _renew() -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, _MOST_SECONDS)


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)
