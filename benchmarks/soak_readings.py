"""What a process holds, read from outside while it runs, and whether that grows."""

from __future__ import annotations

import asyncio
import math
import os
import re
import statistics
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.process_usage import cpu_clock
from benchmarks.soak_programs import Program

_TASKS: Final = "process_asyncio_tasks"
_QUEUES: Final = ("scheduler_pending_pods", "event_recorder_pending")
_SAMPLE: Final = re.compile(r"^(\w+)(?:\{[^}]*\})? ([-+.\deE]+)$", re.MULTILINE)
_WATCHES: Final = re.compile(r'^apiserver_longrunning_requests\{[^}]*verb="WATCH"[^}]*\} ([\d.eE+]+)$', re.MULTILINE)
_MEBIBYTE: Final = 1 << 20
_HOUR: Final = 3600.0
_NORMAL_95: Final = 1.96


@dataclass(frozen=True, slots=True)
class Reading:
    """One process at one moment; ``tasks`` and ``queued`` are None where the program does not say."""

    seconds: float
    """Since the first reading."""
    resident: float
    """MiB, as is ``proportional``, in which a page that others map, too, counts in part."""
    proportional: float
    files: int
    sockets: int
    threads: int
    cpu: float
    """CPU seconds since its start."""
    tasks: int | None = None
    """Of the event loop."""
    queued: int | None = None
    """What waits in its queues."""

    def document(self) -> dict[str, float | int | None]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Slope:
    """Theil and Sen's: the median of the slopes of all pairs, with the range that has it in 95 of 100 cases."""

    per_hour: float
    least: float
    most: float


async def read(program: Program, seconds: float) -> Reading:
    """Raises OSError when the process is gone."""
    assert program.process is not None
    page = await asyncio.to_thread(_page, program.metrics) if program.metrics else ""
    return read_process(program.process.pid, seconds, page)


def read_process(process_id: int, seconds: float, metrics: str = "") -> Reading:
    """``metrics`` is the text of the program's own."""
    folder = Path("/proc") / str(process_id)
    status = _amounts((folder / "status").read_text())
    descriptors = _descriptors(folder / "fd")
    samples = [(name, float(value)) for name, value in _SAMPLE.findall(metrics)]
    own = {name for name, _ in samples}
    return Reading(
        round(seconds, 1),
        round(status["VmRSS"] / 1024, 2),
        round(_amounts((folder / "smaps_rollup").read_text())["Pss"] / 1024, 2),
        len(descriptors),
        sum(target.startswith("socket:") for target in descriptors),
        status["Threads"],
        round(cpu_clock(process_id), 3),
        round(sum(value for name, value in samples if name == _TASKS)) if _TASKS in own else None,
        round(sum(value for name, value in samples if name in _QUEUES)) if own.intersection(_QUEUES) else None,
    )


def watches_of(metrics: str) -> int:
    """How many watches an API server has open, by its metrics."""
    return round(sum(map(float, _WATCHES.findall(metrics))))


def slope(points: Sequence[tuple[float, float]]) -> Slope:
    """Of values over seconds. Needs two points of different times."""
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for index, earlier in enumerate(points)
        for later in points[index + 1 :]
        if later[0] != earlier[0]
    )
    count = len(points)
    # Kendall's statistic of as many independent points has this variance.
    spread = _NORMAL_95 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(0, math.floor((len(slopes) - spread) / 2))
    high = min(len(slopes) - 1, math.ceil((len(slopes) + spread) / 2))
    return Slope(*(round(value * _HOUR, 3) for value in (statistics.median(slopes), slopes[low], slopes[high])))


def growth(readings: Sequence[Reading], field: str) -> dict[str, float | bool] | None:
    """What became of one figure after the first tenth of the time; None where it is not known.

    ``grows`` where even the least slope that the readings allow is above the bound an hour. ``slope_of_second_half`` is
    that of the later half of these readings: what only fills up first has none then.
    """
    span = readings[-1].seconds - readings[0].seconds
    kept = [each for each in readings if each.seconds >= readings[0].seconds + span / 10]
    points = [(each.seconds, float(value)) for each in kept if (value := getattr(each, field)) is not None]
    if len(points) < 3:
        return None
    values = [value for _, value in points]
    found, bound = slope(points), bound_of(field, statistics.median(values))
    tenth = max(1, len(values) // 10)
    return {
        "first": round(statistics.median(values[:tenth]), 2),
        "last": round(statistics.median(values[-tenth:]), 2),
        "most": max(values),
        "slope_per_hour": found.per_hour,
        "slope_least": found.least,
        "slope_most": found.most,
        "slope_of_second_half": slope(points[len(points) // 2 :]).per_hour if len(points) > 3 else found.per_hour,
        "bound_per_hour": round(bound, 2),
        "grows": found.least > bound,
    }


def bound_of(field: str, usual: float) -> float:
    """Growth an hour that is none: two percent and a MiB of memory, one of everything else."""
    return 1.0 + 0.02 * usual if field in ("resident", "proportional") else 1.0


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=20) as response:
            return str(response.read().decode())
    except (OSError, urllib.error.URLError):
        # It has just been killed, or is about to respond: this reading lacks what the program says of itself.
        return ""


def _amounts(text: str) -> Mapping[str, int]:
    lines: Iterable[list[str]] = (line.split() for line in text.splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def _descriptors(folder: Path) -> list[str]:
    found = []
    for name in os.listdir(folder):
        try:
            found.append(os.readlink(folder / name))
        except FileNotFoundError:
            continue  # closed meanwhile
    return found
