"""Whatever happens, every pod is in exactly one pool, and comes out again unless it was removed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from koordinator.scheduler.queue.queued_pod import UNDER_WAY, Pool, QueuedPod
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue
from tests.examples import examples
from tests.scheduler.fakes import describe, make_pod
from tests.scheduler.queue.test_scheduling_queue import Clock, by_priority, gate

PODS = st.sampled_from(["a", "b", "c", "d"])
KINDS = st.sampled_from([EventKind.NODE_ADD, EventKind.POD_DELETE, EventKind.NODE_LABEL])


class QueueMachine(RuleBasedStateMachine):
    """Random use of the queue beside a model: the set of pods, and those that are out."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.queue = SchedulingQueue(by_priority, gate, self.clock)
        self.known: dict[str, bool] = {}
        """Name -> whether it is gated."""
        self.out: dict[str, QueuedPod] = {}

    @rule(name=PODS, cpu=st.sampled_from(["1", "2"]), priority=st.integers(0, 2), gated=st.booleans())
    def add(self, name: str, cpu: str, priority: int, gated: bool) -> None:
        labels = {"gate": "closed"} if gated else {}
        self.queue.add(describe(make_pod(name, cpu=cpu, priority=priority, labels=labels)))
        self.known[name] = gated

    @rule(name=PODS)
    def remove(self, name: str) -> None:
        removed = self.queue.remove(f"uid-{name}")
        assert (removed is not None) == (name in self.known)
        self.known.pop(name, None)
        self.out.pop(name, None)

    @rule()
    def pop(self) -> None:
        entry = self.queue.pop()
        if entry is not None:
            name = entry.pod.pod.metadata.name
            assert name in self.known
            assert name not in self.out
            self.out[name] = entry

    @rule(name=PODS, kinds=st.frozensets(KINDS), ready=st.booleans())
    def add_unschedulable(self, name: str, kinds: frozenset[str], ready: bool) -> None:
        if name in self.out:
            self.queue.add_unschedulable(self.out.pop(name), kinds, "full", ready=ready)

    @rule(name=PODS)
    def preempt(self, name: str) -> None:
        if name in self.out:
            self.queue.await_victims(self.out[name])

    @rule(name=PODS)
    def activate(self, name: str) -> None:
        self.queue.activate([f"uid-{name}"])

    @rule(name=PODS)
    def retry(self, name: str) -> None:
        if name in self.out:
            self.queue.retry(self.out.pop(name), "no answer")

    @rule(kinds=st.lists(KINDS, max_size=2))
    def event(self, kinds: list[str]) -> None:
        for kind in kinds:
            self.queue.on_event(ClusterEvent(kind))

    @rule(seconds=st.sampled_from([0.5, 3.0, 20.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def every_pod_is_in_one_pool(self) -> None:
        pools = {entry.pod.pod.metadata.name: entry.pool for entry in self.queue.pods()}
        assert pools.keys() == self.known.keys()
        for pool in Pool:
            assert self.queue.size(pool) == sum(1 for found in pools.values() if found is pool)
        assert {name for name, pool in pools.items() if pool in UNDER_WAY} == self.out.keys()

    def teardown(self) -> None:
        self.clock.now += 1000
        found = set()
        while (entry := self.queue.pop()) is not None:
            found.add(entry.pod.pod.metadata.name)
        waiting = self.known.keys() - self.out.keys()
        gated = {entry.pod.pod.metadata.name for entry in self.queue.pods() if entry.pool is Pool.GATED}
        assert found == waiting - gated
        assert all(self.known[name] for name in gated)


QueueMachine.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
TestQueue = QueueMachine.TestCase


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=30))
@settings(deadline=None, max_examples=examples(50))
def test_pods_come_out_by_priority_and_age(arrivals: list[tuple[int, int]]) -> None:
    clock = Clock()
    queue = SchedulingQueue(by_priority, gate, clock)
    expected = []
    for number, (priority, wait) in enumerate(arrivals):
        clock.now += wait
        queue.add(describe(make_pod(f"p{number}", priority=priority)))
        expected.append((-priority, clock.now, number))
    order = []
    while (entry := queue.pop()) is not None:
        order.append(int(entry.pod.pod.metadata.name[1:]))
    assert order == [number for _, _, number in sorted(expected)]
