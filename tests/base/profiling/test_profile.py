"""What is encoded is what a reader of pprof's format finds."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from koordinator.base.profiling import MOST_FRAMES, Frame, Place, Profile, Unit, places_from
from tests.base.profiling.pprof_file import read_pprof

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
COUNT = Unit("samples", "count")
FRAMES = st.builds(
    Frame,
    st.sampled_from(["f", "g", "<module>", "ü"]),
    st.sampled_from(["a.py", "b.py"]),
    st.integers(1, 1 << 40),
    st.integers(1, 9),
)
STACKS = st.lists(FRAMES, min_size=1, max_size=5).map(tuple)


@given(st.dictionaries(STACKS, st.tuples(st.integers(0, 1 << 62), st.integers(0, 1 << 62)), max_size=5))
def test_every_sample_is_there_with_its_values(samples: dict[tuple[Frame, ...], tuple[int, int]]) -> None:
    read = read_pprof(Profile((COUNT, Unit("cpu", "nanoseconds")), samples, NOON).encode())
    expected = {
        tuple(f"{frame.function} {frame.file}:{frame.line} ({frame.first_line})" for frame in stack): list(values)
        for stack, values in samples.items()
    }
    assert read.samples == expected
    assert read.units == [("samples", "count"), ("cpu", "nanoseconds")]


def test_when_and_how_often_is_there() -> None:
    read = read_pprof(Profile((COUNT,), {}, NOON, 2.5, Unit("cpu", "nanoseconds"), 10_000_000).encode())
    assert (read.period_unit, read.period) == (("cpu", "nanoseconds"), 10_000_000)
    assert (read.time_nanos, read.duration_nanos) == (int(NOON.timestamp()) * 10**9, 2_500_000_000)


def deep(depth: int) -> tuple[Place, ...]:
    return deep(depth - 1) if depth else places_from(sys._getframe())


def test_endless_stacks_lose_what_called_the_rest() -> None:
    assert [place.frame.function for place in deep(MOST_FRAMES + 5)] == [f"{__name__}.deep"] * MOST_FRAMES
