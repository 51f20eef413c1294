from __future__ import annotations

import pytest

from benchmarks.process_usage import Usage
from benchmarks.scheduler_perf.measurement import Measurement, MetricsCollection, Totals, ratios, totals
from benchmarks.scheduler_perf.pod_tracker import Binding, Key


def binding(name: str, moment: float, namespace: str = "ns", app: str = "a") -> tuple[Key, Binding]:
    return (namespace, name), Binding(moment, "node", {"app": app})


def measured(*bindings: tuple[Key, Binding], selector: dict[str, str] | None = None) -> Measurement:
    collection = MetricsCollection("m", frozenset({"ns"}), selector, 10.0, Usage(1.0, 0))
    return collection.finish(bindings, Usage(3.0, 0), None)


def test_time_runs_from_the_start_to_the_last_binding() -> None:
    found = measured(binding("a", 11), binding("b", 14), binding("c", 12))
    assert (found.pods, found.seconds, found.cpu_seconds, found.pods_per_second) == (3, 4, 2, 0.75)


def test_earlier_bindings_do_not_count() -> None:
    assert measured(binding("a", 9), binding("b", 12)).pods == 1


def test_other_namespaces_do_not_count() -> None:
    assert measured(binding("a", 11), binding("b", 12, namespace="other")).pods == 1


def test_other_labels_do_not_count() -> None:
    assert measured(binding("a", 11), binding("b", 12, app="b"), selector={"app": "b"}).pods == 1


def test_nothing_bound_is_no_rate() -> None:
    assert measured().document()["pods_per_second"] == 0


def test_totals_add_up() -> None:
    found = totals([Measurement("a", 10, 1.0, None, 1.0), Measurement("b", 30, 3.0, None, 1.0)], 2**20)
    assert found == Totals(pods_per_second=10, cpu_seconds_per_pod=0.05, peak_mebibytes=1)


@pytest.mark.parametrize("measurements", [[], [Measurement("a", 0, 0.0, None, 1.0)]])
def test_without_pods_there_are_no_totals(measurements: list[Measurement]) -> None:
    assert totals(measurements, 1) is None


def test_ratios_are_ours_to_the_original() -> None:
    found = ratios(Totals(300, 0.001, 50), Totals(100, 0.004, 100))
    assert found == {"pods_per_second": 3, "cpu_per_pod": 0.25, "peak_memory": 0.5}
