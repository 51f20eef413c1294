"""A simulation says what a scheduler would that starts on such a cluster, and leaves no trace."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.meta import LabelSelector
from koordinator.api.pod import Affinity, Pod, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration import default_configuration
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import Aspect, NodeColumns
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.framework import Plugin, PluginError, Reason
from koordinator.scheduler.engine.plugin_forms import RowFilterPlugin
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.table import BUILT_IN
from tests.examples import examples
from tests.scheduler.fakes import FirstChoice, describe, make_node, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster, listed

NODES = ("a", "b", "c", "d")
_CONFIGURATION = default_configuration()


class Real:
    """The default profile, with all its plugins and ``more``, on four nodes in two zones."""

    def __init__(self, *more: type[Plugin]) -> None:
        view = ClusterView(NodeColumns())
        view.now = NOW
        self.view = view
        self.state = ClusterState(view)
        profile = build_profiles(_CONFIGURATION, BUILT_IN, view)[0]
        order = reduce(listed, more, profile.order)
        plugins = {**profile.plugins, **{kind.name: kind(None, view) for kind in more}}
        self.profile = Profile(profile.scheduler_name, plugins, order)
        self.state.add_event_handlers(self.profile.event_handlers)
        self.engine = Engine(self.profile, self.state, FirstChoice())
        for number, name in enumerate(NODES):
            labels = {"zone": f"z{number // 2}", "kubernetes.io/hostname": name}
            self.state.set_node(make_node(name, labels=labels))

    def info(self, pod: Pod) -> PodInfo:
        return make_pod_info(pod)

    def filter_results(self, pod: Pod) -> dict[str, bool]:
        """By a class that is evaluated for the first time."""
        evaluation = Evaluation(self.profile, self.view, self.info(pod))
        evaluation.refresh()
        return {name: bool(evaluation.feasible[row]) for name, row in sorted(self.view.columns.row_of.items())}


def term(app: str, key: str) -> PodAffinityTerm:
    return PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": app}), topology_key=key)


def of_kind(name: str, kind: str, cpu: str = "1") -> Pod:
    """A pod whose label ``app`` is its kind, with what that kind says about others."""
    pod = make_pod(name, cpu=cpu, labels={"app": kind})
    affinity, spread = None, []
    match kind:
        case "apart":
            affinity = Affinity(
                pod_anti_affinity=PodAffinity(
                    required_during_scheduling_ignored_during_execution=[term("apart", "kubernetes.io/hostname")]
                )
            )
        case "near":
            affinity = Affinity(
                pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=[term("plain", "zone")])
            )
        case "spread":
            selector = LabelSelector(match_labels={"app": "spread"})
            spread = [
                TopologySpreadConstraint(
                    max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=selector
                )
            ]
        case "against":
            affinity = Affinity(
                pod_anti_affinity=PodAffinity(
                    required_during_scheduling_ignored_during_execution=[term("plain", "zone")]
                )
            )
    spec = msgspec.structs.replace(pod.spec, affinity=affinity, topology_spread_constraints=spread)
    return msgspec.structs.replace(pod, spec=spec)


KINDS = st.sampled_from(["plain", "apart", "near", "spread", "against"])
PLACED = st.lists(st.tuples(KINDS, st.sampled_from(NODES)), max_size=8)
CHANGES = st.lists(st.one_of(st.integers(0, 7), st.tuples(KINDS, st.sampled_from(NODES))), min_size=1, max_size=8)


def traces(cluster: Real) -> Any:
    columns = cluster.view.columns
    rows = slice(columns.size)
    return (
        columns.requested[rows].tolist(),
        [each.counted[:2] for each in columns.numbers[rows]],
        [columns.row_version(row) for row in range(columns.size)],
        [columns.versions(aspect).tolist() for aspect in columns.aspects],
        {row: list(pods) for row, pods in cluster.view.pods_on.items()},
        cluster.state.pod_count,
    )


@settings(max_examples=examples(60), deadline=None)
@given(PLACED, CHANGES, KINDS)
def test_it_says_what_a_fresh_scheduler_would(
    placed: Sequence[tuple[str, str]], changes: Sequence[int | tuple[str, str]], kind: str
) -> None:
    real, fresh = Real(), Real()
    requesting = of_kind("asking", kind)
    for number, (each, node) in enumerate(placed):
        real.state.assume(real.info(of_kind(f"p{number}", each)), node)
    on_nodes = {f"uid-p{number}": (f"p{number}", each, node) for number, (each, node) in enumerate(placed)}
    real.engine.decide(real.info(requesting), NOW)
    before, filter_results = traces(real), real.filter_results(requesting)
    with real.engine.handle.simulate() as simulation:
        for number, change in enumerate(changes):
            if isinstance(change, int):
                there = real.state.placed(f"uid-p{change}")
                if there is not None:
                    simulation.remove(there.pod)
                    del on_nodes[there.pod.uid]
            else:
                name = f"new{number}"
                simulation.place(real.info(of_kind(name, change[0])), real.view.columns.row_of[change[1]])
                on_nodes[f"uid-{name}"] = (name, *change)
            found = {name: simulation.fits(real.info(requesting), real.view.columns.row_of[name]) for name in NODES}
        for name, each, node in on_nodes.values():
            fresh.state.assume(fresh.info(of_kind(name, each)), node)
        assert found == fresh.filter_results(requesting)
    assert traces(real) == before
    assert real.filter_results(requesting) == filter_results
    decided = real.engine.decide(real.info(requesting), NOW)
    assert getattr(decided, "feasible", 0) == sum(filter_results.values())


class Counting(RowFilterPlugin):
    """Lets two pods on a node; cannot count to one."""

    name = "Counting"
    reads = (Aspect.PODS,)

    def filter_one(self, pod: PodInfo, state: Any, row: int) -> int:
        count = len(self.view.pods_on[row])
        if count == 1:
            raise ArithmeticError("one is too hard")
        return int(count >= 2)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (Reason("too many pods"),)


def test_a_filter_that_fails_in_the_middle_leaves_no_trace() -> None:
    cluster = Cluster([make_node("a"), make_node("b")], Counting)
    there = [cluster.bound(make_pod(name), "a") for name in ("p", "q")]
    columns = cluster.view.columns
    before = columns.requested[:2].tolist(), [columns.row_version(row) for row in range(2)]

    def plan() -> None:
        with cluster.engine.handle.simulate() as simulation:
            simulation.place(describe(make_pod("new")), 1)
            simulation.reprieve(describe(make_pod("vip")), 0, there)

    with pytest.raises(ArithmeticError):
        plan()
    assert (columns.requested[:2].tolist(), [columns.row_version(row) for row in range(2)]) == before
    assert list(cluster.view.pods_on[0]) == ["uid-p", "uid-q"]
    assert not cluster.view.pods_on[1]


def test_the_time_limit_leaves_no_trace() -> None:
    cluster = Cluster([make_node("a")])
    there, calls = cluster.bound(make_pod("p"), "a"), []

    def time_is_up() -> None:
        calls.append(True)
        if len(calls) == 2:
            raise PluginError("no decision within 10 s")

    cluster.engine.check_time = time_is_up

    def plan() -> None:
        with cluster.engine.handle.simulate() as simulation:
            simulation.remove(there)
            assert simulation.fits(describe(make_pod("vip", cpu="4")), 0)
            simulation.fits(describe(make_pod("vip", cpu="4")), 0)

    with pytest.raises(PluginError):
        plan()
    assert list(cluster.view.pods_on[0]) == ["uid-p"]


def test_reprieve_keeps_who_may_stay() -> None:
    cluster = Cluster([make_node("a", cpu="3")])
    there = [cluster.bound(make_pod(name), "a") for name in ("p", "q", "r")]
    with cluster.engine.handle.simulate() as simulation:
        victims = simulation.reprieve(describe(make_pod("vip", cpu="2")), 0, there)
        assert victims is not None
        assert [victim.key for victim in victims] == ["default/q", "default/r"]
        assert list(cluster.view.pods_on[0]) == ["uid-p"]
    assert list(cluster.view.pods_on[0]) == ["uid-p", "uid-q", "uid-r"]


def test_reprieve_in_vain_changes_nothing() -> None:
    cluster = Cluster([make_node("a", cpu="3")])
    there = [cluster.bound(make_pod("p"), "a")]
    with cluster.engine.handle.simulate() as simulation:
        assert simulation.reprieve(describe(make_pod("vip", cpu="4")), 0, there) is None
        assert list(cluster.view.pods_on[0]) == ["uid-p"]


def test_nominated_pods_count_unless_they_are_ignored() -> None:
    cluster = Cluster([make_node("a", cpu="2")])
    nominated = describe(make_pod("other", cpu="2", priority=9))
    cluster.view.nominations.set(nominated, "a")
    with cluster.engine.handle.simulate() as simulation:
        assert not simulation.fits(describe(make_pod("p")), 0)
        assert simulation.fits(describe(make_pod("p")), 0, ignoring={nominated.uid})


def test_simulations_may_be_nested() -> None:
    cluster = Cluster([make_node("a", cpu="2")])
    there = cluster.bound(make_pod("p", cpu="2"), "a")
    with cluster.engine.handle.simulate() as outer:
        outer.remove(there)
        with cluster.engine.handle.simulate() as inner:
            inner.place(describe(make_pod("q", cpu="2")), 0)
            assert not inner.fits(describe(make_pod("vip")), 0)
        assert outer.fits(describe(make_pod("vip")), 0)
    assert cluster.view.columns.requested[0, 0] == 2000
