"""A decision that takes too long is ended, and never in the middle of a change of what all decisions share."""

from __future__ import annotations

import gc
import signal
import sys
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

from koordinator.api.kinds import NODE_METRICS
from koordinator.api.meta import ObjectMeta
from koordinator.api.nodemetric import NodeMetric, NodeMetricStatus
from koordinator.api.resource_names import CPU
from koordinator.scheduler.configuration.koordinator_arguments import LoadAwareSchedulingArgs
from koordinator.scheduler.cycle.decision_limit import DecisionLimit, packages_of
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import Aspect, Ints, NodeColumns, Rows
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.framework import EventHandler, FilterPlugin, Plugin, PluginError, Reason
from koordinator.scheduler.engine.framework_hooks import FilterTransformer
from koordinator.scheduler.engine.journal import Adjustment
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.load_aware.plugin import LoadAwareScheduling
from tests.scheduler.fakes import FirstChoice, describe, make_node, make_pod, make_profile

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CHANGING = {
    *("columns", "row_amounts", "cluster_state", "view", "groups", "journal", "failed_attempt", "cached_results"),
    *("load_columns", "node_load", "contextlib", "fakes", Path(__file__).stem),
}
"""The modules that change what all decisions share, or call and are called by those in the middle of it; a decision
runs through each."""
NODES = 3
VIP = describe(make_pod("vip", cpu="2", priority=10))
Location = tuple[CodeType, int]


class Foreign(FilterPlugin, FilterTransformer, EventHandler):
    """Of another package than the scheduler: looks at pods, counts them by itself, and shows nodes a little fuller."""

    name = "Foreign"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE, Aspect.PODS)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.pods: dict[int, set[str]] = {}

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        codes = np.zeros(rows.shape[0], dtype=np.int64)
        for index, row in enumerate(rows.tolist()):
            codes[index] = len(self.pods.get(row, ())) > 2
        return codes

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (Reason("too many pods for Foreign"),)

    def before_filter(self, pod: PodInfo, rows: Rows) -> Mapping[int, Adjustment]:
        return {row: Adjustment({CPU: 100}, (100, 0)) for row in rows.tolist()}

    def on_pod_assigned(self, row: int, pod: PodInfo, assumed: bool) -> None:
        self.pods.setdefault(row, set()).add(pod.uid)

    def on_pod_removed(self, row: int, pod: PodInfo) -> None:
        self.pods[row].discard(pod.uid)


class Cluster:
    """Full nodes, one of which has just become too old to be trusted, and a pod that has to preempt others."""

    def __init__(self) -> None:
        view = ClusterView(NodeColumns())
        self.state = ClusterState(view, self._failed)
        base = make_profile(view, preempts=True)
        extra: dict[str, Plugin] = {
            "Foreign": Foreign(None, view),
            "LoadAwareScheduling": LoadAwareScheduling(LoadAwareSchedulingArgs(), view),
        }
        order = replace(base.order, filter=(*base.order.filter, *extra))
        self.profile = Profile(base.scheduler_name, {**base.plugins, **extra}, order)
        self.state.add_event_handlers(self.profile.event_handlers)
        self.foreign = extra["Foreign"]
        self.failures: list[Exception] = []
        view.now = NOW
        for number in range(NODES):
            self.state.set_node(make_node(f"n{number}"))
            metric = NodeMetric(metadata=ObjectMeta(name=f"n{number}"), status=NodeMetricStatus(update_time=NOW))
            self.state.set_node_object(NODE_METRICS.name, f"n{number}", metric)
            for pod in range(3):
                self.state.set_pod(
                    describe(make_pod(f"p{number}-{pod}", cpu="1", labels={"app": f"{number}-{pod}"})), f"n{number}"
                )
        self.new_engine()

    def new_engine(self, limit: DecisionLimit | None = None) -> None:
        self.engine = Engine(self.profile, self.state, FirstChoice())
        if limit is not None:
            self.engine.check_time = limit.check

    def _failed(self, plugin: str, method: str, error: Exception) -> None:
        self.failures.append(error)

    def decide(self) -> str:
        result = self.engine.decide(msgspec.structs.replace(VIP, memo={}), NOW)
        if isinstance(result, Placement):
            return f"placed on {result.node_name}"
        victims = ", ".join(sorted(victim.key for victim in result.after.victims))
        return f"{result.message} {result.after.nominated_node} {victims}"

    def books(self) -> dict[str, Any]:
        """All numbers that decisions of all pods share."""
        columns = self.state.view.columns
        return {
            "requested": columns.requested[:NODES].tolist(),
            "non-zero": [numbers.counted[:2] for numbers in columns.numbers[:NODES]],
            "unused": columns._unused[:NODES].tolist(),
            "floats": columns._floats.requested[:, :NODES].tolist(),
            "numbers": [[each.requested, each.counted, each.unused] for each in columns.numbers],
            "pods": {row: sorted(pods) for row, pods in self.state.view.pods_on.items()},
            "placed": sorted(self.state._placed),
            "foreign": {row: sorted(pods) for row, pods in vars(self.foreign)["pods"].items()},
        }


@contextmanager
def tracing(seen: Callable[[FrameType], None], code: CodeType | None = None) -> Iterator[None]:
    """Call ``seen`` at every line of Python that runs, of ``code`` alone if given; what it raises is raised there."""

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            seen(frame)
        return trace if code in (None, frame.f_code) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def locations(decide: Callable[[], object]) -> list[Location]:
    """Every line that a decision runs through in ``CHANGING``."""
    found: dict[Location, None] = {}
    with tracing(lambda frame: found.setdefault((frame.f_code, frame.f_lineno))):
        decide()
    return [where for where in found if _module(where) in CHANGING]


def _module(where: Location) -> str:
    return Path(where[0].co_filename).stem


# The tests below call the handler of the signal themselves: no time is left, and a timer of 0 seconds does not run.


def struck_at(where: Location, limit: DecisionLimit, decide: Callable[[], object]) -> bool:
    """Whether the decision ends where the time is up at ``where``."""
    handler: Any = signal.getsignal(signal.SIGALRM)
    strikes = iter([True])

    def seen(frame: FrameType) -> None:
        if (frame.f_code, frame.f_lineno) == where and next(strikes, False):
            handler(signal.SIGALRM, frame)

    try:
        with limit, tracing(seen, where[0]):
            decide()
    except PluginError:
        return True
    return False


def test_wherever_the_time_is_up_nothing_is_left_half_changed() -> None:
    """One cluster lives through all strikes, so that nothing may add up either; each finds an engine without caches."""
    cluster = Cluster()
    books, expected = cluster.books(), cluster.decide()
    assert "n0" in expected
    cluster.new_engine()
    places = locations(lambda: cluster.decide())
    assert {_module(where) for where in places} == CHANGING
    limit = DecisionLimit(0, packages_of([cluster.profile]))
    ended = 0
    for where in places:
        cluster.new_engine(limit)
        ended += struck_at(where, limit, lambda: cluster.decide())
        assert cluster.books() == books, f"after a strike in {where[0].co_qualname}, line {where[1]}"
        assert cluster.decide() == expected, f"after a strike in {where[0].co_qualname}, line {where[1]}"
        assert not cluster.failures
    assert ended > 10


class Endless(FilterPlugin):
    """Never answers, and catches what it can to go on."""

    name = "Endless"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        caught = 0
        while caught < 2:
            try:
                while True:
                    np.union1d(rows, rows)
            except PluginError:
                caught += 1
        raise KeyError("caught twice")

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return ()


def test_a_plugin_that_catches_the_end_of_its_time_is_ended_again() -> None:
    cluster = Cluster()
    base = make_profile(cluster.state.view)
    endless = Endless(None, cluster.state.view)
    order = replace(base.order, filter=(*base.order.filter, "Endless"))
    profile = Profile(base.scheduler_name, {**base.plugins, "Endless": endless}, order)
    engine = Engine(profile, cluster.state, FirstChoice())
    with pytest.raises(PluginError, match="caught twice"), DecisionLimit(0.02, packages_of([profile])):
        engine.decide(describe(make_pod("p")), NOW)


def test_what_the_garbage_collector_calls_is_not_ended_in_the_place_of_the_plugin() -> None:
    """An error there is lost: nobody has called it."""
    ends: list[float] = []

    def callback(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and not ends:
            end = time.monotonic() + 0.1
            while time.monotonic() < end:
                pass
            ends.append(end)

    def collect_and_go_on_for_ever() -> None:
        gc.collect()
        while True:
            pass

    # What other tests have left, and finalizers in C among it, must not be collected under the limit.
    gc.collect()
    gc.callbacks.append(callback)
    try:
        with pytest.raises(PluginError, match=r"no decision within 0\.02 s"), DecisionLimit(0.02, {"tests"}):
            collect_and_go_on_for_ever()
    finally:
        gc.callbacks.remove(callback)
    assert ends


class Finalized:
    """Calls ``finalizer`` when nobody refers to it any more."""

    def __init__(self, finalizer: Callable[[], object]) -> None:
        self._finalizer = finalizer

    def __del__(self) -> None:
        self._finalizer()


def test_a_finalizer_is_not_ended_in_the_place_of_the_plugin() -> None:
    """It may be anybody's, and an error there is lost."""
    limit = DecisionLimit(0, {"tests"})
    handler: Any = signal.getsignal(signal.SIGALRM)
    called: list[str] = []

    def finalizer() -> None:
        handler(signal.SIGALRM, sys._getframe())
        called.append("to its end")

    with limit:
        Finalized(finalizer)
        assert called == ["to its end"]
        with pytest.raises(PluginError, match="no decision within 0 s"):
            limit.check()


def test_a_weak_set_that_forgets_is_not_ended_in_the_place_of_the_plugin() -> None:
    limit = DecisionLimit(0, {"tests"})
    handler: Any = signal.getsignal(signal.SIGALRM)
    forgets = weakref.WeakSet([each := Finalized(int)])
    struck: list[str] = []

    def strike(frame: FrameType) -> None:
        if frame.f_globals["__name__"] == "_weakrefset" and not struck:
            struck.append(frame.f_code.co_name)
            handler(signal.SIGALRM, frame)

    with limit, tracing(strike):
        del each
    assert struck == ["_remove"]
    assert not len(forgets)


def test_code_of_this_package_is_ended_only_where_it_looks_itself() -> None:
    limit = DecisionLimit(0, {"elsewhere"})
    handler: Any = signal.getsignal(signal.SIGALRM)
    with limit:
        limit.check()
        handler(signal.SIGALRM, sys._getframe())
        with pytest.raises(PluginError, match="no decision within 0 s"):
            limit.check()
    limit.check()


def test_the_timer_of_an_earlier_decision_does_not_end_this_one() -> None:
    limit = DecisionLimit(3600, {"tests"})
    handler: Any = signal.getsignal(signal.SIGALRM)
    with limit:
        pass
    with limit:
        handler(signal.SIGALRM, sys._getframe())
        limit.check()
    handler(signal.SIGALRM, sys._getframe())
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_timer_of_an_earlier_decision_may_end_while_this_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = DecisionLimit(3600, {"tests"})
    handler: Any = signal.getsignal(signal.SIGALRM)
    now, ends = time.monotonic, [True]

    def monotonic() -> float:
        if ends and ends.pop():
            handler(signal.SIGALRM, sys._getframe())
        return now()

    monkeypatch.setattr("koordinator.scheduler.cycle.decision_limit.time.monotonic", monotonic)
    with limit:
        limit.check()
    assert not ends
    handler(signal.SIGALRM, sys._getframe())
