"""Whether what a process holds grows, from readings of it."""

from __future__ import annotations

import os

import pytest

from benchmarks.soak_readings import Reading, growth, read_process, slope, watches_of

_HALF_MINUTE = 30.0


def readings(values: list[float]) -> list[Reading]:
    return [
        Reading(number * _HALF_MINUTE, value, value, 10, 5, 3, 0.0, tasks=None) for number, value in enumerate(values)
    ]


def test_a_slope_is_that_of_most_pairs() -> None:
    """One reading that is far off changes nothing."""
    found = slope([(float(second), 100.0 + second / 60) for second in range(0, 600, 30)] + [(600.0, 9000.0)])
    assert found.least <= found.per_hour <= found.most
    assert found.per_hour == pytest.approx(60.0)


def test_what_grows_in_the_first_tenth_alone_does_not_grow() -> None:
    found = growth(readings([50.0 + 5 * min(number, 9) for number in range(100)]), "resident")
    assert found is not None
    assert (found["first"], found["slope_per_hour"], found["grows"]) == (95.0, 0.0, False)


def test_a_leak_of_a_page_a_reading_is_found() -> None:
    found = growth(readings([100.0 + number / 16 for number in range(100)]), "resident")
    assert found is not None
    assert found["slope_per_hour"] == pytest.approx(7.5)
    assert found["grows"]


def test_what_swings_does_not_grow() -> None:
    found = growth(readings([100.0 + number % 7 for number in range(100)]), "resident")
    assert found is not None
    assert not found["grows"]


def test_what_a_program_does_not_say_has_no_growth() -> None:
    assert growth(readings([1.0] * 50), "tasks") is None


def test_a_process_is_read_with_what_it_says_of_itself() -> None:
    page = (
        "# HELP process_asyncio_tasks Tasks.\nprocess_asyncio_tasks 7.0\n"
        'scheduler_pending_pods{queue="active"} 2.0\nscheduler_pending_pods{queue="backoff"} 1.0\n'
    )
    found = read_process(os.getpid(), 12.0, page)
    assert (found.seconds, found.tasks, found.queued) == (12.0, 7, 3)
    assert found.resident > 1
    assert 0 < found.proportional <= found.resident * 1.1
    assert found.files >= found.sockets >= 0
    assert found.threads >= 1
    assert read_process(os.getpid(), 0.0).tasks is None


def test_watches_are_those_of_the_api_server_of_all_kinds() -> None:
    page = (
        'apiserver_longrunning_requests{group="",resource="pods",scope="cluster",verb="WATCH",version="v1"} 5\n'
        'apiserver_longrunning_requests{group="apps",resource="jobs",scope="cluster",verb="WATCH",version="v1"} 2\n'
        'apiserver_longrunning_requests{group="",resource="pods",scope="resource",verb="CONNECT",version="v1"} 9\n'
    )
    assert watches_of(page) == 7
