"""Processor time is found where it is spent, by the system's own timer."""

from __future__ import annotations

import signal
import time

from koordinator.base.profiling import CpuSampler

ENOUGH_SECONDS = 5.0


def spend(sampler: CpuSampler) -> None:
    """Until a sample was taken; the timer runs with the processor time that this takes."""
    begun = time.process_time()
    while not sampler.stacks():
        assert time.process_time() - begun < ENOUGH_SECONDS


def test_the_place_that_spends_the_time_is_found() -> None:
    with CpuSampler() as sampler:
        spend(sampler)
    names = {frame.function for stack in sampler.stacks() for frame in stack}
    assert {f"{__name__}.spend", f"{__name__}.test_the_place_that_spends_the_time_is_found"} <= names


def test_innermost_comes_first() -> None:
    with CpuSampler() as sampler:
        spend(sampler)
    functions = [frame.function for frame in next(iter(sampler.stacks()))]
    assert functions.index(f"{__name__}.spend") < functions.index(f"{__name__}.test_innermost_comes_first")


def test_nothing_is_sampled_afterwards() -> None:
    with CpuSampler() as sampler:
        spend(sampler)
    seen = sum(sampler.stacks().values())
    signal.raise_signal(signal.SIGPROF)
    assert sum(sampler.stacks().values()) == seen
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_a_late_signal_does_not_end_the_process() -> None:
    with CpuSampler():
        pass
    assert callable(signal.getsignal(signal.SIGPROF))
