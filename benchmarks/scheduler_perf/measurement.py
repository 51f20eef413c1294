"""What is measured between two moments of a workload: pods bound, seconds, the scheduler's CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.process_usage import Usage
from benchmarks.scheduler_perf.pod_tracker import Binding, Key, selected


@dataclass(frozen=True, slots=True)
class Measurement:
    """``seconds``: from the start of the collection until the last pod was bound."""

    name: str
    pods: int
    seconds: float
    creation_seconds: float | None
    """How long the creation of the pods took, when one operation created them."""
    cpu_seconds: float

    @property
    def pods_per_second(self) -> float:
        return self.pods / self.seconds if self.seconds else 0.0

    def document(self) -> dict[str, object]:
        return {
            "name": self.name,
            "pods": self.pods,
            "pods_per_second": round(self.pods_per_second, 1),
            "seconds": round(self.seconds, 3),
            "creation_seconds": None if self.creation_seconds is None else round(self.creation_seconds, 3),
            "cpu_ms_per_pod": round(self.cpu_seconds * 1000 / self.pods, 3) if self.pods else None,
        }


@dataclass(frozen=True, slots=True)
class MetricsCollection:
    """Metrics collection that has been started: whose pods count, since when, and the CPU used until then."""

    name: str
    namespaces: frozenset[str]
    label_selector: Mapping[str, str] | None
    moment: float
    usage: Usage

    def finish(
        self, bindings: Iterable[tuple[Key, Binding]], usage: Usage, creation_seconds: float | None
    ) -> Measurement:
        moments = [
            binding.moment
            for (namespace, _), binding in bindings
            if binding.moment >= self.moment
            and namespace in self.namespaces
            and selected(binding.labels, self.label_selector)
        ]
        return Measurement(
            name=self.name,
            pods=len(moments),
            seconds=max(moments, default=self.moment) - self.moment,
            creation_seconds=creation_seconds,
            cpu_seconds=usage.cpu_seconds - self.usage.cpu_seconds,
        )


@dataclass(frozen=True, slots=True)
class Totals:
    """All measurements of a run together, to compare two runs by."""

    pods_per_second: float
    cpu_seconds_per_pod: float
    peak_mebibytes: float


def totals(measurements: Sequence[Measurement], peak_bytes: int) -> Totals | None:
    """None when no pod was measured."""
    pods = sum(one.pods for one in measurements)
    seconds = sum(one.seconds for one in measurements)
    if not pods or not seconds:
        return None
    return Totals(pods / seconds, sum(one.cpu_seconds for one in measurements) / pods, peak_bytes / 2**20)


def ratios(ours: Totals, original: Totals) -> dict[str, float]:
    """Ours ÷ original."""
    return {
        "pods_per_second": round(ours.pods_per_second / original.pods_per_second, 2),
        "cpu_per_pod": round(ours.cpu_seconds_per_pod / (original.cpu_seconds_per_pod or 0.01), 3),
        "peak_memory": round(ours.peak_mebibytes / original.peak_mebibytes, 3),
    }
