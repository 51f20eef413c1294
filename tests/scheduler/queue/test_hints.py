"""Only events that may help wake a pod, asked once for pods that are alike; who is tried next when profiles compete."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.queue.pools import RecentEvents, UnschedulablePods
from koordinator.scheduler.queue.queued_pod import Pool, QueuedPod
from koordinator.scheduler.queue.scheduling_queue import ActivePods, SchedulingQueue
from tests.scheduler.fakes import describe, make_node, make_pod
from tests.scheduler.queue.test_scheduling_queue import WAKES, Clock, add, by_priority, gate, names, pop

NODE = ClusterEvent(EventKind.NODE_ADD, None, make_node("n"))


class QueueingHints:
    """Says yes for the pods in ``helped``, and counts how often it was queried."""

    def __init__(self, *helped: str) -> None:
        self.helped = frozenset(helped)
        self.calls: list[str] = []

    def __call__(self, entry: QueuedPod, event: ClusterEvent) -> bool:
        name = entry.pod.pod.metadata.name
        self.calls.append(name)
        return name in self.helped


def queue_with(hints: QueueingHints) -> SchedulingQueue:
    return SchedulingQueue(by_priority, gate, Clock(), queueing_hint=hints)


def add_all_unschedulable(queue: SchedulingQueue, pods: Iterable[str], group: str | None = None) -> None:
    for name in pods:
        add(queue, name)
        queue.add_unschedulable(pop(queue), WAKES, "full", plugins=frozenset({"Fit"}), group=group)


def waiting(queue: SchedulingQueue) -> set[str]:
    return {entry.pod.pod.metadata.name for entry in queue.pods() if entry.pool is Pool.UNSCHEDULABLE}


def test_only_pods_that_an_event_helps_are_woken() -> None:
    queue = queue_with(QueueingHints("b"))
    add_all_unschedulable(queue, "abc")
    queue.on_event(NODE)
    assert waiting(queue) == {"a", "c"}


def test_a_kind_of_event_that_nobody_waits_for_asks_nobody() -> None:
    hints = QueueingHints("a")
    queue = queue_with(hints)
    add_all_unschedulable(queue, "a")
    queue.on_event(ClusterEvent(EventKind.NODE_LABEL))
    assert hints.calls == []


def test_pods_that_are_alike_are_queried_about_once() -> None:
    hints = QueueingHints("p0")
    queue = queue_with(hints)
    add_all_unschedulable(queue, [f"p{number}" for number in range(1000)], group="equal")
    queue.on_event(NODE)
    assert (hints.calls, waiting(queue)) == (["p0"], set())


def test_an_event_in_flight_that_does_not_help_leaves_the_pod_unschedulable() -> None:
    queue = queue_with(QueueingHints())
    add(queue, "a")
    entry = pop(queue)
    queue.on_event(NODE)
    queue.add_unschedulable(entry, WAKES, "full")
    assert entry.pool is Pool.UNSCHEDULABLE


def test_a_unschedulable_pod_reports_what_it_waits_for() -> None:
    queue = queue_with(QueueingHints())
    add_all_unschedulable(queue, "a")
    (entry,) = queue.pods()
    assert (entry.reason, entry.events_to_register, entry.plugins) == ("full", WAKES, frozenset({"Fit"}))


def test_take_ignores_the_order() -> None:
    queue = queue_with(QueueingHints())
    add_all_unschedulable(queue, "a")
    add(queue, "b")
    taken = queue.take("uid-a")
    assert taken is not None
    assert (taken.pool, names(queue)) == (Pool.IN_FLIGHT, ["b"])


def test_take_leaves_what_is_gated_or_in_flight() -> None:
    queue = queue_with(QueueingHints())
    add(queue, "gated", labels={"gate": "closed"})
    add(queue, "flying")
    pop(queue)
    assert [queue.take(uid) for uid in ("uid-gated", "uid-flying", "uid-unknown")] == [None, None, None]


def test_activate_wakes_a_pod_before_its_back_off_is_over() -> None:
    queue = queue_with(QueueingHints())
    add_all_unschedulable(queue, "ab")
    queue.activate(["uid-a", "uid-unknown"])
    assert {entry.pod.pod.metadata.name for entry in queue.pods() if entry.pool is Pool.ACTIVE} == {"a"}


def test_profiles_of_equal_importance_take_turns() -> None:
    active = ActivePods()
    for number in range(5):
        _push(active, f"many-{number}", "one", priority=0, age=number)
    _push(active, "single", "other", priority=0, age=100)
    order = [active.pop() for _ in range(2)]
    assert {entry.pod.pod.metadata.name for entry in order if entry} == {"many-0", "single"}


def test_importance_comes_before_turns() -> None:
    active = ActivePods()
    _push(active, "low", "other", priority=0, age=0)
    for number in range(3):
        _push(active, f"high-{number}", "one", priority=9, age=number)
    order = [entry.pod.pod.metadata.name for entry in (active.pop() for _ in range(4)) if entry]
    assert order == ["high-0", "high-1", "high-2", "low"]


def _push(active: ActivePods, name: str, profile: str, *, priority: int, age: float) -> None:
    pod = describe(make_pod(name, scheduler=profile, priority=priority))
    active.push((-priority, age), QueuedPod(pod, age, age))


def test_events_that_are_not_kept_any_more_are_not_passed_over() -> None:
    events = RecentEvents(kept=2)
    for _ in range(3):
        events.add(NODE)
    assert events.since(0) is None
    assert list(events.since(1) or ()) == [NODE, NODE]


@pytest.mark.parametrize(
    ("events_to_register", "pool"), [(frozenset({"Node/Add"}), Pool.BACKOFF), (frozenset[str](), Pool.UNSCHEDULABLE)]
)
def test_a_pod_that_no_event_can_free_misses_none(events_to_register: frozenset[str], pool: Pool) -> None:
    """Members of a gang, say, which another one brings back: more events than are kept happen while they let go."""
    queue = SchedulingQueue(lambda pod, queued_at: (queued_at,), lambda pod: None, lambda: 0.0)
    queue.add(describe(make_pod("p")))
    entry = queue.pop()
    assert entry is not None
    for _ in range(5000):
        queue.on_event(ClusterEvent("Pod/Delete"))
    queue.add_unschedulable(entry, events_to_register, "no room")
    assert entry.pool is pool


def test_an_event_that_is_useless_to_a_pod_frees_its_like() -> None:
    queue = SchedulingQueue(lambda pod, queued_at: (queued_at,), lambda pod: None, lambda: 0.0)
    for name in ("p", "q"):
        queue.add(describe(make_pod(name)))
        entry = queue.pop()
        assert entry is not None
        queue.add_unschedulable(entry, frozenset({NODE.kind}), "no room", group="alike")
    queue.on_event(NODE, ("uid-p",))
    pools = {name: found.pool for name in ("p", "q") if (found := queue.get(f"uid-{name}")) is not None}
    assert pools == {"p": Pool.UNSCHEDULABLE, "q": Pool.BACKOFF}


PODS = st.lists(
    st.tuples(st.frozensets(st.sampled_from(["Node/Add", "Pod/Delete"]), min_size=1), st.integers(0, 2)), max_size=12
)


@given(PODS, st.sampled_from(["Node/Add", "Pod/Delete", "Node/Delete"]), st.frozensets(st.integers(0, 2)))
@settings(deadline=None)
def test_groups_free_the_pods_that_asking_each_would_free(
    pods: list[tuple[frozenset[str], int]], kind: str, helped: frozenset[int]
) -> None:
    """Pods of one group have the same kinds and the same response; whether grouped or not, the same pods wake."""
    kinds_of: dict[int, frozenset[str]] = {}

    def freed(*, grouped: bool) -> set[str]:
        lot = UnschedulablePods(lambda entry, event: int(entry.pod.pod.metadata.labels["group"]) in helped)
        for number, (kinds, group) in enumerate(pods):
            entry = QueuedPod(describe(make_pod(f"p{number}", labels={"group": str(group)})), 0, 0)
            entry.events_to_register = kinds_of.setdefault(group, kinds)
            entry.group = group if grouped else None
            lot.add(entry)
        return {entry.pod.uid for entry in lot.freed_by(ClusterEvent(kind))}

    assert freed(grouped=True) == freed(grouped=False)
