from __future__ import annotations

from koordinator.api.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.base.clock import ManualClock
from tests.costs.call_counter import CallCounter


def counted(*texts: str) -> dict[str, int]:
    counter = CallCounter()
    with counter.counting():
        for text in texts:
            parse_cpu_list(text)
    return dict(counter.calls)


def test_calls_of_ours_and_what_they_call_are_counted() -> None:
    """One range: the function itself, its own helper for each end, and what it calls of Python's."""
    calls = counted("0-3")
    assert calls["koordinator.api.cpu_list:parse_cpu_list"] == 1
    assert calls["koordinator.api.cpu_list:_is_number"] == 2
    assert calls["builtins:str.partition"] == 1


def test_twice_the_work_counts_twice() -> None:
    once, twice = counted("0-3,7"), counted("0-3,7", "0-3,7")
    assert twice == {name: 2 * count for name, count in once.items()}


def test_what_is_not_to_be_measured_counts_as_one_call_at_most() -> None:
    counter = CallCounter()
    clock = ManualClock()

    def of_tests() -> str:
        return format_cpu_list({0, 1})

    with counter.counting():
        clock.now()
        of_tests()
    assert dict(counter.calls) == {}
