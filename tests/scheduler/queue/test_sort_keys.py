"""A QueueSort plugin that fails, or whose keys cannot be compared: pods are taken all the same."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from koordinator.scheduler.engine.framework import QueueSortPlugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.queue.queued_pod import checked_sort_key
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue
from tests.scheduler.fakes import describe, make_pod, make_state


class ByLabel(QueueSortPlugin):
    """The label ``turn``, a number if it looks like one; does not take no label for an answer."""

    name = "ByLabel"

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[Any, ...]:
        turn = pod.pod.metadata.labels["turn"]
        return (int(turn) if turn.isdigit() else turn, queued_at)


def taken(*pods: tuple[str, str | None, int]) -> tuple[list[str], list[str]]:
    """The names of the pods (name, turn, priority) as they are taken, and the errors."""
    errors: list[str] = []
    plugin = ByLabel(None, make_state().view)
    key = checked_sort_key(plugin, lambda *error: errors.append(f"{error[0]} {error[1]} {type(error[2]).__name__}"))
    queue = SchedulingQueue(key, lambda pod: None, lambda: 1.0)
    for name, turn, priority in pods:
        labels = {} if turn is None else {"turn": turn}
        queue.add(describe(make_pod(name, labels=labels, priority=priority)))
    names = []
    while (entry := queue.pop()) is not None:
        names.append(entry.pod.pod.metadata.name)
    return names, errors


def test_keys_decide() -> None:
    assert taken(("b", "2", 0), ("c", "10", 9), ("a", "1", 0), ("d", "10", 0)) == (["a", "b", "c", "d"], [])


def test_a_pod_without_a_key_comes_last_by_its_priority() -> None:
    names, errors = taken(("low", None, 1), ("a", "1", 0), ("high", None, 5))
    assert names == ["a", "high", "low"]
    assert errors == ["ByLabel sort_key KeyError"] * 2


def test_keys_that_cannot_be_compared_give_way_to_priority() -> None:
    names, errors = taken(("number", "1", 0), ("word", "first", 7))
    assert names == ["word", "number"]
    assert set(errors) == {"ByLabel sort_key TypeError"}
