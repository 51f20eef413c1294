"""The allocation ledger: each allocation counts once, and is released once, whatever happens to pods and nodes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.resync import Resync
from koordinator.scheduler.engine.view import ClusterView
from tests.examples import examples
from tests.scheduler.fakes import describe, make_node, make_pod, make_state
from tests.scheduler.ground.clusters import NOW, Cluster
from tests.scheduler.ground.cpu_sets import ANNOTATION, CpuSets


def with_cpus(name: str, cpus: int = 2, held: str = "", **changes: str) -> Pod:
    pod = make_pod(name, cpu="0", memory="0", labels={"cpus": str(cpus), **changes})
    annotations = {ANNOTATION: held} if held else {}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))


def make_cluster(*nodes: str) -> tuple[Cluster, CpuSets]:
    cluster = Cluster([make_node(name) for name in nodes or ("a",)], CpuSets)
    plugin = cluster.profile.plugins["CpuSets"]
    assert isinstance(plugin, CpuSets)
    return cluster, plugin


def place(cluster: Cluster, pod: Pod) -> Placement:
    result = cluster.engine.decide(describe(pod), NOW)
    assert isinstance(result, Placement)
    assert cluster.engine.assume(result) is None
    return result


def test_what_reserve_allocates_is_not_there_for_the_next_pod() -> None:
    cluster, plugin = make_cluster()
    place(cluster, with_cpus("p", 3))
    assert plugin.free(0) == [3]
    rejection = cluster.engine.decide(describe(with_cpus("q")), NOW)
    assert isinstance(rejection, Rejection)
    assert rejection.message == "0/1 nodes are available: 1 node(s) didn't have free CPUs."


def test_a_refusal_is_undone_and_names_what_the_pod_waits_for() -> None:
    cluster, plugin = make_cluster()
    result = cluster.engine.decide(describe(with_cpus("p", picky="a")), NOW)
    assert isinstance(result, Placement)
    rejection = cluster.engine.assume(result)
    assert rejection is not None
    assert rejection.message == "0/1 nodes are available: 1 no CPUs of one core."
    assert rejection.events_to_register == {EventKind.POD_DELETE, EventKind.NODE_ADD}
    assert not plugin.taken
    assert not cluster.state.pod_count


def test_an_allocation_is_released_once_when_its_pod_goes_before_the_attempt_fails() -> None:
    cluster, plugin = make_cluster()
    placement = place(cluster, with_cpus("p"))
    cluster.state.remove_pod(placement.pod.uid)
    cluster.engine.forget(placement)
    assert not plugin.taken
    assert not cluster.view.allocations.of_pod


def test_a_confirmed_pod_keeps_what_was_allocated() -> None:
    cluster, plugin = make_cluster()
    placement = place(cluster, with_cpus("p"))
    cluster.bound(with_cpus("p", held="0,1"), placement.node_name)
    cluster.engine.forget(placement)
    assert plugin.free(0) == [2, 3]


def test_after_a_restart_allocations_are_read_from_annotations() -> None:
    cluster, plugin = make_cluster()
    cluster.bound(with_cpus("p", held="1,3"), "a")
    assert plugin.free(0) == [0, 2]
    assert cluster.view.allocations.of("CpuSets", "uid-p") == (1, 3)


def test_other_annotations_replace_the_allocation() -> None:
    cluster, plugin = make_cluster()
    cluster.bound(with_cpus("p", held="1,3"), "a")
    cluster.bound(with_cpus("p", held="0,1"), "a")
    assert plugin.free(0) == [2, 3]


def test_allocations_of_a_node_come_back_with_it_on_whatever_row() -> None:
    cluster, plugin = make_cluster("a")
    place(cluster, with_cpus("p"))
    cluster.state.remove_node("a")
    assert not plugin.taken
    cluster.state.set_node(make_node("b"))
    cluster.state.set_node(make_node("a"))
    assert plugin.taken == {cluster.row("a"): [1, 1, 0, 0]}


def test_a_reference_distinguishes_a_node_from_another_on_its_row() -> None:
    cluster, _ = make_cluster("a")
    placement = place(cluster, with_cpus("p"))
    columns = cluster.view.columns
    assert columns.is_current(placement.node)
    cluster.state.remove_node("a")
    cluster.state.set_node(make_node("b"))
    assert columns.row_of["b"] == placement.node.index
    assert not columns.is_current(placement.node)


def test_profiles_share_what_pods_hold() -> None:
    state = make_state()
    one, other = Cluster([make_node("a")], CpuSets, state=state), Cluster([], CpuSets, state=state)
    place(one, with_cpus("p", 3))
    assert isinstance(other.engine.decide(describe(with_cpus("q")), NOW), Rejection)


def test_a_simulation_gives_assumed_pods_back_what_they_held() -> None:
    cluster, plugin = make_cluster()
    first = place(cluster, with_cpus("p", 1))
    place(cluster, with_cpus("q", 3))
    cluster.engine.forget(first)
    with cluster.engine.handle.simulate() as simulation:
        (held,) = cluster.view.pods_on[0].values()
        simulation.remove(held)
        assert plugin.free(0) == [0, 1, 2, 3]
        assert simulation.place(describe(with_cpus("r", 2)), 0) is None
        assert plugin.free(0) == [2, 3]
    assert plugin.free(0) == [0]
    assert cluster.view.allocations.of("CpuSets", "uid-q") == (1, 2, 3)


def test_allocators_of_a_simulation_see_what_it_has_placed() -> None:
    cluster, plugin = make_cluster()
    with cluster.engine.handle.simulate() as simulation:
        assert simulation.place(describe(with_cpus("p", 3)), 0) is None
        refusal = simulation.place(describe(with_cpus("q", 2)), 0)
        assert refusal is not None
        assert refusal.text == "CPUs were taken meanwhile"
        assert not simulation.fits(describe(with_cpus("q", 2)), 0)
    assert not plugin.taken


def test_a_plugin_that_fails_to_count_is_reported_again() -> None:
    failed: list[str] = []
    state = ClusterState(ClusterView(NodeColumns()), lambda plugin, point, error: failed.append(point))
    cluster = Cluster([make_node("a")], CpuSets, state=state)
    plugin = cluster.profile.plugins["CpuSets"]
    assert isinstance(plugin, CpuSets)
    plugin.fails = True
    place(cluster, with_cpus("p"))
    assert failed == ["on_allocated"]
    assert not plugin.taken
    plugin.fails = False
    assert Resync(state).run() == (["CpuSets"], {})
    assert plugin.free(0) == [2, 3]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["place", "forget", "confirm", "delete", "node", "simulate", "annotate"]), st.integers(0, 3)
    ),
    max_size=40,
)


@pytest.mark.parametrize("nodes", [("a",), ("a", "b")])
@settings(max_examples=examples(60), deadline=None)
@given(steps=STEPS)
def test_whatever_happens_each_allocation_counts_once(nodes: tuple[str, ...], steps: list[tuple[str, int]]) -> None:
    cluster, plugin = make_cluster(*nodes)
    placements: dict[str, Placement] = {}
    for step, number in steps:
        _take(cluster, placements, step, f"p{number}", nodes[number % len(nodes)])
        held: dict[int, list[int]] = {}
        for row, pods in cluster.view.pods_on.items():
            for uid in pods:
                for cpu in cluster.view.allocations.of("CpuSets", uid) or ():
                    held.setdefault(row, [0] * 4)[cpu] += 1
        assert plugin.taken == held


def _take(cluster: Cluster, placements: dict[str, Placement], step: str, name: str, node: str) -> None:
    placement = placements.get(name)
    match step:
        case "place" if cluster.state.placed(f"uid-{name}") is None:
            result = cluster.engine.decide(describe(with_cpus(name, 1)), NOW)
            if isinstance(result, Placement) and cluster.engine.assume(result) is None:
                placements[name] = result
        case "forget" if placement is not None:
            cluster.engine.forget(placement)
            del placements[name]
        case "confirm" if placement is not None:
            cluster.bound(with_cpus(name, 1), placement.node_name)
        case "annotate":
            cluster.bound(with_cpus(name, 1, held=name[1:]), node)
        case "delete":
            cluster.state.remove_pod(f"uid-{name}")
        case "node" if cluster.state.has_node(node):
            cluster.state.remove_node(node)
        case "node":
            cluster.state.set_node(make_node(node))
        case "simulate":
            with cluster.engine.handle.simulate() as simulation:
                for pods in list(cluster.view.pods_on.values()):
                    for pod in list[PodInfo](pods.values()):
                        simulation.remove(pod)
