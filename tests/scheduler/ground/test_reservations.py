"""A reservation by the public interface alone: it is scheduled as a pod, and looks gone to its owners only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.row_amounts import CPU
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.queue.queued_pod import Pool
from tests.examples import examples
from tests.scheduler.fakes import Fit, describe, make_node, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster, profile_with
from tests.scheduler.ground.cpu_sets import ANNOTATION, CpuSets
from tests.scheduler.ground.reservations import Reservations
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi


def reservation(name: str = "r", cpu: str = "3") -> Pod:
    return make_pod(name, cpu=cpu, labels={"reservation": "yes"})


def owner(name: str, of: str = "r", cpu: str = "3", **labels: str) -> Pod:
    return make_pod(name, cpu=cpu, labels={"takes": of, **labels})


def test_owners_see_the_node_without_the_reservation() -> None:
    cluster = Cluster([make_node("a")], Reservations)
    cluster.bound(reservation(), "a")
    assert isinstance(cluster.engine.decide(describe(make_pod("p", cpu="3")), NOW), Rejection)
    assert isinstance(cluster.engine.decide(describe(owner("o")), NOW), Placement)
    assert cluster.view.columns.requested[0, CPU] == 3000


def test_owners_see_what_allocators_hold_for_the_reservation_as_free() -> None:
    cluster = Cluster([make_node("a")], Reservations, CpuSets)
    held = msgspec.structs.replace(reservation(), metadata=reservation().metadata)
    metadata = msgspec.structs.replace(held.metadata, annotations={ANNOTATION: "0,1,2"})
    cluster.bound(msgspec.structs.replace(held, metadata=metadata), "a")
    plain = cluster.engine.decide(describe(make_pod("p", cpu="0", labels={"cpus": "2"})), NOW)
    assert getattr(plain, "message", "").endswith("1 node(s) didn't have free CPUs.")
    assert isinstance(cluster.engine.decide(describe(owner("o", cpus="2")), NOW), Placement)


def test_classes_that_it_does_not_concern_share_and_follow_row_by_row() -> None:
    cluster = Cluster([make_node(f"n{number}") for number in range(50)], Reservations)
    fit = cluster.profile.plugins["Fit"]
    assert isinstance(fit, Fit)
    first = cluster.engine.decide(describe(make_pod("p")), NOW)
    assert isinstance(first, Placement)
    assert fit.filtered_rows == 50
    cluster.engine.assume(first)
    cluster.engine.decide(describe(make_pod("q")), NOW)
    assert fit.filtered_rows == 51
    cluster.engine.decide(describe(owner("o", cpu="1")), NOW)
    assert fit.filtered_rows == 51, "an owner of nothing that exists shares what is known"
    cluster.bound(reservation(cpu="1"), "n7")
    cluster.engine.decide(describe(owner("o2", cpu="1")), NOW)
    assert fit.filtered_rows == 53, "the row once as it is, and once as owners see it"


def test_an_owner_may_take_a_node_from_which_others_are_kept_by_preemption_questions_too() -> None:
    cluster = Cluster([make_node("a")], Reservations)
    cluster.bound(reservation(), "a")
    with cluster.engine.handle.simulate() as simulation:
        assert simulation.fits(describe(owner("o")), 0)
        assert not simulation.fits(describe(make_pod("p", cpu="3")), 0)


NODES = ("a", "b", "c")
STEPS = st.lists(
    st.tuples(st.sampled_from(["reserve", "free", "pod", "gone", "node", "ask"]), st.integers(0, 5)), max_size=30
)


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_a_class_that_follows_says_what_a_new_one_would(steps: Sequence[tuple[str, int]]) -> None:
    cluster = Cluster([make_node(name, labels={"rank": str(index)}) for index, name in enumerate(NODES)], Reservations)
    requesting = describe(owner("o", of="r0", cpu="2"))
    followed = Evaluation(cluster.profile, cluster.view, requesting)
    for step, number in steps:
        _take(cluster, step, number, NODES[number % len(NODES)])
        if step == "ask":
            followed.refresh()
    followed.refresh()
    fresh = Evaluation(cluster.profile, cluster.view, requesting)
    fresh.refresh()
    rows = list(cluster.view.columns.row_of.values())
    assert followed.feasible[rows].tolist() == fresh.feasible[rows].tolist()
    assert followed.totals[rows].tolist() == fresh.totals[rows].tolist()
    assert followed.feasible_count == fresh.feasible_count
    assert followed.scores_of(rows) == fresh.scores_of(rows)
    assert _failures(followed) == _failures(fresh)


def _failures(evaluation: Evaluation) -> set[tuple[str, int, int]]:
    found = evaluation.failures()
    return {(failure.plugin.name, failure.code, row) for failure in found for row in failure.rows.tolist()}


def _take(cluster: Cluster, step: str, number: int, node: str) -> None:
    match step:
        case "reserve":
            cluster.bound(reservation(f"r{number % 2}", cpu="2"), node)
        case "free":
            cluster.state.remove_pod(f"uid-r{number % 2}")
        case "pod":
            cluster.bound(make_pod(f"p{number}", cpu="2"), node)
        case "gone":
            cluster.state.remove_pod(f"uid-p{number}")
        case "node" if cluster.state.has_node(node):
            cluster.state.remove_node(node)
        case "node":
            cluster.state.set_node(make_node(node, labels={"rank": str(number)}))


def one_node() -> SchedulerApi:
    api = SchedulerApi()
    api.store(make_node("a"))
    return api


def plugin_of(fixture: RunningScheduler) -> Reservations:
    plugin = fixture.scheduler.engines["koord-scheduler"].profile.plugins["Reservations"]
    assert isinstance(plugin, Reservations)
    return plugin


async def _reserve(fixture: RunningScheduler, pod: Pod) -> None:
    plugin_of(fixture).handle.set_pseudo_pod(pod)
    await fixture.until_idle()


def test_a_pseudo_pod_is_scheduled_and_counts() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await _reserve(fixture, reservation())
        assert plugin_of(fixture).placed == {"default/r": "a"}
        assert fixture.scheduler.state.confirmed_node("uid-r") == "a"
        fixture.api.store(make_pod("p", cpu="2"))
        await fixture.until_idle()
        assert fixture.api.placed() == {}
        plugin_of(fixture).handle.remove_pseudo_pod(reservation())
        await fixture.until_idle(30)

    fixture = simulate(story, one_node, lambda view: profile_with(view, Reservations))
    assert fixture.api.placed() == {"p": "a"}
    assert [note for note in fixture.events.notes if note[0] == "r"] == []


def test_nobody_writes_about_a_pseudo_pod_that_fits_nowhere() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await _reserve(fixture, reservation(cpu="9"))
        assert fixture.scheduler.queue.size(Pool.UNSCHEDULABLE) == 1
        plugin_of(fixture).handle.remove_pseudo_pod(reservation(cpu="9"))

    fixture = simulate(story, one_node, lambda view: profile_with(view, Reservations))
    assert plugin_of(fixture).failures == ["0/1 nodes are available: 1 Insufficient cpu."]
    assert fixture.events.notes == []
    assert fixture.api.conditions == []
    assert len(fixture.scheduler.queue) == 0


class Follower(Reservations):
    """Makes a pseudo-pod for each node, in the middle of the event that shows the node."""

    name = "Follower"

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.nodes: list[str] = []

    def on_node(self, row: int, node: Node) -> None:
        self.nodes.append(node.metadata.name)
        self.handle.set_pseudo_pod(reservation(f"for-{node.metadata.name}", cpu="1"))
        assert self.view.pods_on[row] == {}


def test_pseudo_pods_that_come_within_an_event_wait_for_its_end() -> None:
    async def story(fixture: RunningScheduler) -> None:
        plugin = fixture.scheduler.engines["koord-scheduler"].profile.plugins["Follower"]
        assert isinstance(plugin, Follower)
        assert plugin.placed == {"default/for-a": "a"}
        fixture.api.store(make_node("b"))
        await fixture.until_idle()
        assert plugin.placed.keys() == {"default/for-a", "default/for-b"}
        for name in plugin.nodes:
            plugin.handle.remove_pseudo_pod(reservation(f"for-{name}"))

    fixture = simulate(story, one_node, lambda view: profile_with(view, Follower))
    assert fixture.scheduler.state.pod_count == 0
