"""What every backend of the metric cache has to do: the one of koordlet, and the example for those of other packages.

The oracle is the cache in memory: whatever is appended, and whenever the process ends, a cache that was restored has
what one without any restart has.
"""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.backends import (
    Backend,
    MetricCacheError,
    OpenBackend,
    open_sqlite,
    restore,
)
from koordinator.koordlet.observe.metric_cache.kinds import Round, Series
from koordinator.koordlet.observe.metric_cache.ring import Retention, RingMetricCache

EXAMPLE = Path(__file__).parents[4] / "docs/examples/koordlet-backend/csv_files.py"
RETENTIONS = {kinds.NODE: Retention(1.0, 60.0), kinds.PODS: Retention(1.0, 30.0)}
CPU = kinds.NODE_CPU_USAGE.series()
NAMES = ("sqlite", "csv-files")


def backend_of(name: str) -> OpenBackend:
    if name == "sqlite":
        return open_sqlite
    found: OpenBackend = runpy.run_path(str(EXAMPLE))["open_files"]
    return found


@pytest.fixture(params=NAMES)
def open_backend(request: pytest.FixtureRequest) -> OpenBackend:
    return backend_of(request.param)


def pod(name: str) -> Series:
    return kinds.POD_CPU_USAGE.series(pod_uid=name)


def seconds(first: int, end: int) -> list[Round]:
    """In both groups, one after the other, as they are measured."""
    of_each = (
        (Round(at * 1000, {CPU: float(at)}), Round(at * 1000, {pod("a"): at / 2, pod("b"): 1e-7}))
        for at in range(first, end)
    )
    return [each for pair in of_each for each in pair]


def restored(backend: Backend, now: int) -> RingMetricCache:
    cache = RingMetricCache(RETENTIONS, 1 << 20)
    restore(cache, backend.read(), RETENTIONS, now)
    return cache


def cpu(cache: RingMetricCache) -> list[float]:
    return list(cache.select(kinds.NODE_CPU_USAGE, 0, 10**15).values)


def test_samples_are_there_again(open_backend: OpenBackend, tmp_path: Path) -> None:
    backend = open_backend(tmp_path / "made", RETENTIONS)
    backend.write(seconds(1, 11))
    backend.close()
    backend = open_backend(tmp_path / "made", RETENTIONS)
    cache = restored(backend, 10_000)
    assert cpu(cache) == [float(second) for second in range(1, 11)]
    of_pods = [cache.select(kinds.POD_CPU_USAGE, 0, 10_000, pod_uid=name).values[-1] for name in "ab"]
    assert of_pods == [5.0, 1e-7]
    backend.close()


def test_what_was_written_outlives_a_kill(open_backend: OpenBackend, tmp_path: Path) -> None:
    backend = open_backend(tmp_path, RETENTIONS)
    backend.write(seconds(1, 3))
    other = open_backend(tmp_path, RETENTIONS)
    assert cpu(restored(other, 3000)) == [1.0, 2.0]
    other.close()
    backend.close()


def test_what_is_old_and_what_is_of_the_future_stays_away(open_backend: OpenBackend, tmp_path: Path) -> None:
    backend = open_backend(tmp_path, RETENTIONS)
    backend.write(seconds(1, 90))
    cache = restored(backend, 80_000)
    assert cpu(cache) == [float(second) for second in range(20, 81)]
    assert cache.select(kinds.POD_CPU_USAGE, 0, 10**9, pod_uid="a").times[0] == 50_000
    backend.close()


def test_what_is_kept_is_bounded(open_backend: OpenBackend, tmp_path: Path) -> None:
    backend = open_backend(tmp_path, RETENTIONS)
    for second in range(1, 2001, 5):
        backend.write(seconds(second, second + 5))
    kept = list(backend.read())
    backend.close()
    assert len(kept) < 1000
    assert sum(CPU in each.samples for each in kept) >= RETENTIONS[kinds.NODE].rows


def test_what_makes_no_sense_costs_itself_alone(open_backend: OpenBackend, tmp_path: Path) -> None:
    backend = open_backend(tmp_path, RETENTIONS)
    backend.write(seconds(1, 3))
    backend.close()
    for file in tmp_path.iterdir():
        with file.open("r+b") as opened:
            opened.truncate(file.stat().st_size - 1)
            opened.seek(0, 2)
            opened.write(b'\x00,\xff"torn')
    backend = open_backend(tmp_path, RETENTIONS)
    restored(backend, 3000)
    backend.write(seconds(3, 5))
    assert cpu(restored(backend, 5000))[-2:] == [3.0, 4.0]
    backend.close()


@pytest.mark.parametrize("garbage", ["\0" * 200_000, "9" * 200_000, "\\\n" * 200_000], ids=["NUL", "long", "joined"])
def test_a_line_of_the_example_that_no_process_has_written_costs_itself_alone(tmp_path: Path, garbage: str) -> None:
    """A machine that lost its power may leave such."""
    backend = backend_of("csv-files")(tmp_path, RETENTIONS)
    backend.write(seconds(1, 3))
    with (tmp_path / "node.csv").open("a") as file:
        file.write(f"{garbage}\n")
    backend.write(seconds(3, 5))
    backend = backend_of("csv-files")(tmp_path, RETENTIONS)
    assert cpu(restored(backend, 5000))[-1] == 4.0


def test_a_line_of_the_example_that_was_torn_is_no_sample(tmp_path: Path) -> None:
    backend = backend_of("csv-files")(tmp_path, RETENTIONS)
    backend.write(seconds(11, 13))
    file = tmp_path / "node.csv"
    file.write_text(file.read_text().removesuffix("2.0\n"))
    backend = backend_of("csv-files")(tmp_path, RETENTIONS)
    assert cpu(restored(backend, 13_000)) == [11.0]
    backend.write(seconds(13, 14))
    assert cpu(restored(backend, 13_000)) == [11.0, 13.0]


def test_a_folder_that_cannot_be_made_is_named(open_backend: OpenBackend, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MetricCacheError, match="file/samples"):
        open_backend(tmp_path / "file" / "samples", RETENTIONS)


@pytest.mark.parametrize("name", NAMES)
@given(
    rounds=st.lists(
        st.tuples(st.integers(-3, 5), st.dictionaries(st.sampled_from("abc"), st.floats(0, 100), min_size=1)),
        min_size=1,
        max_size=20,
    ),
    ends=st.sets(st.integers(0, 19)),
)
def test_as_if_the_process_had_never_ended(
    name: str,
    rounds: list[tuple[int, Mapping[str, float]]],
    ends: set[int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder, open_backend = tmp_path_factory.mktemp("samples"), backend_of(name)
    memory, at = RingMetricCache(RETENTIONS, 1 << 20), 10_000
    backend = open_backend(folder, RETENTIONS)
    for number, (step, samples) in enumerate(rounds):
        at = max(at + step * 1000, 0)
        measured = Round(at, {pod(uid): value for uid, value in samples.items()})
        memory.append(*measured)
        backend.write([measured])
        if number in ends:
            backend.close()
            backend = open_backend(folder, RETENTIONS)
            # What has no number yet is known by what was read.
            list(backend.read())
    backend.close()
    backend = open_backend(folder, RETENTIONS)
    cache = restored(backend, at)
    backend.close()
    for uid in "abc":
        one, other = (each.select(kinds.POD_CPU_USAGE, at - 30_000, at, pod_uid=uid) for each in (memory, cache))
        assert (list(one.times), list(one.values)) == (list(other.times), list(other.values))
    shutil.rmtree(folder)
