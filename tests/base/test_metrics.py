"""Names and buckets of metrics."""

from __future__ import annotations

import asyncio

import pytest

from koordinator.base.metrics import Metrics, exponential_buckets


def test_buckets_grow_by_the_factor() -> None:
    assert exponential_buckets(0.001, 2, 4) == (0.001, 0.002, 0.004, 0.008)


def test_help_starts_with_the_stability() -> None:
    metrics = Metrics()
    metrics.gauge("queue_depth", "Depth.", stability="STABLE")
    assert "# HELP queue_depth [STABLE] Depth." in metrics.exposition()[0].decode()


def test_same_name_is_the_same_metric() -> None:
    metrics = Metrics()
    assert metrics.counter("a_total", "A.") is metrics.counter("a_total", "A.")


def test_same_name_with_other_labels_is_refused() -> None:
    metrics = Metrics()
    metrics.counter("a_total", "A.")
    with pytest.raises(ValueError, match="a_total"):
        metrics.counter("a_total", "A.", ("label",))


def test_counters_end_in_total() -> None:
    with pytest.raises(ValueError, match="_total"):
        Metrics().counter("a", "A.")


def test_programs_do_not_share_metrics() -> None:
    one, other = Metrics(), Metrics()
    one.counter("a_total", "A.").inc()
    assert other.registry.get_sample_value("a_total") is None


def test_process_metrics() -> None:
    metrics = Metrics()
    metrics.add_process_metrics()
    assert "process_resident_memory_bytes" in metrics.exposition()[0].decode()


def test_tasks_of_the_event_loop_are_counted() -> None:
    metrics = Metrics()
    metrics.add_process_metrics()

    async def with_another() -> float | None:
        other = asyncio.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        count = metrics.registry.get_sample_value("process_asyncio_tasks")
        other.cancel()
        return count

    assert asyncio.run(with_another()) == 2
    assert metrics.registry.get_sample_value("process_asyncio_tasks") == 0
