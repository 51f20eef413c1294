"""What is changed in a simulation is as it was after it, with all that is cached of it, whatever was raised inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.api.pod import Pod
from koordinator.api.resource_names import CPU
from koordinator.scheduler.engine.binding_points import CycleState
from koordinator.scheduler.engine.columns import Aspect
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.failed_attempt import Attempt, RowCache
from koordinator.scheduler.engine.journal import Adjustment, Journal
from koordinator.scheduler.explain.pod import fitting
from koordinator.scheduler.explain.sources import filter_nodes
from tests.examples import examples
from tests.scheduler.fakes import make_pod
from tests.scheduler.ground.clusters import NOW
from tests.scheduler.ground.reservations import Reservations
from tests.scheduler.ground.test_simulation import KINDS, NODES, Real, of_kind, traces

EVERY_KIND = ("plain", "apart", "near", "spread", "against")


class Failed(Exception):
    """Raised in the middle of a block."""


class Failing:
    """A Change that fails, with half of it done."""

    def __init__(self, real: Real) -> None:
        self._restored = real.view.restored

    def apply(self) -> None:
        self._restored[Failing, "half", 0] = True
        raise Failed

    def revert(self) -> None:
        del self._restored[Failing, "half", 0]


ROWS = st.integers(0, len(NODES) - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("remove"), st.integers(0, 5)),
        st.tuples(st.just("put back"), st.integers(0, 5)),
        st.tuples(st.just("place"), KINDS, ROWS),
        st.tuples(st.just("request"), ROWS, st.sampled_from([-2000, 500, 4000])),
        st.tuples(st.just("adjust"), ROWS, st.integers(0, 5), KINDS),
        st.tuples(st.just("ask"), KINDS, ROWS),
        st.tuples(st.just("slots"), KINDS),
        st.tuples(st.just("remember"), ROWS),
        st.tuples(st.just("undo"), st.integers(0, 3)),
        st.tuples(st.just("nested")),
        st.tuples(st.just("fail"), st.booleans()),
    ),
    max_size=12,
)


class Asking:
    """A cluster whose caches are warm, and what is done to it in nested blocks."""

    def __init__(self, placed: Sequence[tuple[str, str]]) -> None:
        self.real = Real(Reservations)
        for number, (kind, node) in enumerate(placed):
            pod = of_kind(f"p{number}", kind)
            if not number:
                pod = replace(pod, metadata=replace(pod.metadata, labels={**pod.metadata.labels, "reservation": "yes"}))
            self.real.state.set_pod(self.real.info(pod), node)
        self.names = 0
        self.row_cache = RowCache()
        self.row_cache.results("key", self.real.view.columns).update(dict.fromkeys(range(len(NODES)), "known"))

    def fresh(self, kind: str, name: str = "") -> Pod:
        self.names += 1
        return of_kind(name or f"new{self.names}", kind)

    def decisions(self) -> list[Any]:
        """By evaluations that are cached; the last pod sees a node adjusted."""
        owner = of_kind("owner", "spread")
        owner = replace(owner, metadata=replace(owner.metadata, labels={**owner.metadata.labels, "takes": "p0"}))
        found: list[Any] = []
        for pod in (owner, *(of_kind("asking", kind) for kind in EVERY_KIND)):
            info = self.real.info(pod)
            decided = self.real.engine.decide(info, NOW)
            found += [decided.feasible if isinstance(decided, Placement) else decided.message, decided.evaluated]
            found.append(fitting(filter_nodes(self.real.profile, self.real.view, info), self.real.view.columns))
        return found

    def books(self) -> Any:
        columns, view = self.real.view.columns, self.real.view
        return (
            traces(self.real),
            columns._unused[: columns.size].tolist(),
            columns._floats.requested.tolist(),
            [[each.requested, each.counted, each.unused, dict(each.unoffered)] for each in columns.numbers],
            [pod.uid for pods in view.pods_on.values() for pod in pods.values()],
            dict(view.restored),
            list(columns.simulations),
        )

    def run(self, journal: Journal, steps: Sequence[tuple[Any, ...]]) -> None:
        real, handle = self.real, self.real.engine.handle
        for number, step in enumerate(steps):
            match step:
                case "remove", each:
                    journal.remove(f"uid-p{each}")
                case "put back", each:
                    journal.put_back(f"uid-p{each}")
                case "place", kind, row:
                    journal.place(real.info(self.fresh(kind)), row)
                case "request", row, cpu:
                    journal.add_request(row, {CPU: cpu, "example.com/unoffered": 1}, (cpu, 0))
                case "adjust", row, each, kind:
                    there = real.state.placed(f"uid-p{each}")
                    removed = (there.pod,) if there is not None else ()
                    added = (real.info(self.fresh(kind)),)
                    journal.adjust(row, Adjustment({CPU: 100}, (100, 0), removed, added))
                case "ask", kind, row:
                    with handle.simulate() as simulation:
                        simulation.fits(real.info(self.fresh(kind, "asking")), row)
                        simulation.reprieve(
                            real.info(self.fresh(kind, "vip")), row, list(real.view.pods_on[row].values())
                        )
                case "slots", kind:
                    handle.slots([real.info(self.fresh(kind, f"asking{each}")) for each in range(3)])
                case "remember", row:
                    self.row_cache.results("key", real.view.columns)
                case "undo", back:
                    calls, requests = journal.mark
                    journal.undo((max(calls - back, 0), max(requests - back, 0)))
                case ("nested",):
                    with real.view.simulate() as inner:
                        self.run(inner, steps[number + 1 :])
                    return
                case "fail", is_half:
                    if is_half:
                        journal.adjust(0, Adjustment(changes=(Failing(real),)))
                    raise Failed


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(KINDS, st.sampled_from(NODES)), min_size=1, max_size=6), STEPS)
def test_after_a_block_everything_is_as_before(
    placed: Sequence[tuple[str, str]], steps: Sequence[tuple[Any, ...]]
) -> None:
    asking = Asking(placed)
    columns = asking.real.view.columns
    decisions, books, version = asking.decisions(), asking.books(), columns.version
    failed = False
    try:
        with asking.real.view.simulate() as journal:
            asking.run(journal, steps)
    except Failed:
        failed = True
    assert failed == any(step[0] == "fail" for step in steps)
    assert asking.books() == books
    assert columns.changes_since(version, 0) == {}
    assert columns.touched_since(version).rows.tolist() == []
    assert not columns.has_changed(columns.aspects, version)
    assert set(asking.row_cache.results("key", columns).values()) == {"known"}
    assert asking.decisions() == decisions
    columns.touch(0, Aspect.PODS)
    assert columns.changes_since(version, 1) == {0: 1 << Aspect.PODS}
    assert asking.decisions() == decisions


def test_what_one_class_sees_adjusted_is_not_what_others_are_counted_by() -> None:
    """Both classes share the counts of PodTopologySpread. One of them takes from a reservation in the first zone."""
    real = Real(Reservations)
    held, owner = of_kind("r", "spread"), of_kind("owner", "spread")
    held = replace(held, metadata=replace(held.metadata, labels={**held.metadata.labels, "reservation": "yes"}))
    owner = replace(owner, metadata=replace(owner.metadata, labels={**owner.metadata.labels, "takes": "r"}))
    real.state.set_pod(real.info(held), "a")
    other = real.info(of_kind("other", "spread"))
    assert [real.engine.decide(pod, NOW).feasible for pod in (real.info(owner), other)] == [3, 2]  # type: ignore[union-attr]


def test_slots_that_are_counted_in_a_simulation_are_not_remembered() -> None:
    real = Real()
    pod = real.info(of_kind("p", "plain"))
    with real.engine.handle.simulate() as simulation:
        for row in range(len(NODES)):
            assert simulation.place(real.info(of_kind(f"large{row}", "plain", cpu="4")), row) is None
        found = real.engine.handle.slots([pod])
        assert found is not None
        assert found.counts.tolist() == [0, 0, 0, 0]
    decided = real.engine.decide(pod, NOW)
    assert isinstance(decided, Placement)
    assert decided.feasible == len(NODES)


def test_a_decision_after_a_simulation_refreshes_no_row() -> None:
    real = Real()
    pod = real.info(of_kind("p", "plain"))
    real.engine.decide(pod, NOW)
    columns = real.view.columns
    version = columns.version
    with real.view.simulate() as journal:
        for _ in range(5000):
            journal.add_request(0, {CPU: 1}, (1, 0))
    assert columns.version > version
    assert columns.changes_since(version, 0) == {}
    assert columns.count_since(version) == 0


def test_requests_that_are_counted_many_times_are_undone_from_any_mark() -> None:
    columns = (real := Real()).view.columns
    with real.view.simulate() as journal:
        journal.add_request(0, {CPU: 100}, (100, 7), 3)
        mark = journal.mark
        for times in (1, -2, 5):
            journal.add_request(0, {CPU: 10}, (10, 1), times)
        assert columns.numbers[0].counted[:2] == [340, 25]
        journal.undo(mark)
        assert columns.numbers[0].counted[:2] == [300, 21]
    assert columns.numbers[0].counted[:2] == [0, 0]


def test_an_attempt_in_a_simulation_caches_nothing_of_it() -> None:
    real = Real()
    pod = real.info(make_pod("p", cpu="3"))
    key, evaluation = real.engine._current(pod)
    attempt = Attempt(real.profile, real.state, evaluation, CycleState(pod), key, RowCache(), lambda: None)
    count = attempt.remember("count", lambda row: len(real.view.pods_on[row]))
    assert [count(0), count(1)] == [0, 0]
    with real.view.simulate() as journal:
        journal.place(real.info(make_pod("large", cpu="4")), 0)
        assert [count(0), count(2)] == [1, 0]
        with attempt.simulate() as simulation:
            assert [simulation.fits(pod, row) for row in range(2)] == [False, True]
    assert count(0) == 0
    decided = real.engine.decide(pod, NOW)
    assert isinstance(decided, Placement)
    assert decided.feasible == len(NODES)
