"""Pods may request resources that no node offers, of any name: such names cost their pods something, and no node."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.api.kinds import RESERVATIONS
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.quantity import Quantity
from koordinator.api.reservation import RESTRICTED, Reservation
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.row_amounts import UNOFFERED
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.reservation.reserve_pod import reserve_pod
from tests.examples import examples
from tests.scheduler.broken_input.test_broken_objects import chart_profile
from tests.scheduler.explain.scene import Scene
from tests.scheduler.fakes import FirstChoice, make_node, make_pod
from tests.scheduler.ground.clusters import NOW
from tests.scheduler.plugins.elastic_quota.quota_cluster import QuotaCluster, of_quota
from tests.scheduler.plugins.elastic_quota.test_plugin import limited
from tests.scheduler.plugins.reservation.test_free_capacity import OWNER, available
from tests.scheduler.running_scheduler import RunningScheduler
from tests.scheduler.scheduler_api import SchedulerApi

FOO, BAR = "example.com/foo", "example.com/bar"
_NAMES = 300
_MOST_BYTES = 1 << 18
"""A column of each name on so many nodes would take several times as much."""


def offering(node: Node, **amounts: str) -> Node:
    """``foo`` and ``bar``, of ``example.com``."""
    more = {f"example.com/{name}": Quantity.parse(amount) for name, amount in amounts.items()}
    return replace(node, status=replace(node.status, allocatable={**node.status.allocatable, **more}))


def requesting(pod: Pod, amounts: Mapping[str, str]) -> Pod:
    (container,) = pod.spec.containers
    requests = {**container.resources.requests, **{name: Quantity.parse(each) for name, each in amounts.items()}}
    container = replace(container, resources=replace(container.resources, requests=requests))
    return replace(pod, spec=replace(pod.spec, containers=[container]))


class ChartCluster:
    """An engine with the profile of the chart."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.view = ClusterView(NodeColumns(), now=NOW)
        self.state = ClusterState(self.view)
        profile = chart_profile(self.view)
        self.state.add_event_handlers(profile.event_handlers)
        for node in nodes:
            self.state.set_node(node)
        self.engine = Engine(profile, self.state, FirstChoice())

    def decide(self, pod: Pod) -> Placement | Rejection:
        return self.engine.decide(make_pod_info(pod), NOW)

    def message(self, pod: Pod) -> str:
        """Why it gets no node; empty if it gets one."""
        decided = self.decide(pod)
        return decided.message if isinstance(decided, Rejection) else ""

    def bound(self, pod: Pod, node_name: str) -> None:
        self.state.set_pod(make_pod_info(pod), node_name)


def test_names_that_pods_invent_cost_no_node_anything() -> None:
    cluster = ChartCluster(make_node(f"n{number}") for number in range(50))
    cluster.decide(make_pod("first"))
    columns = cluster.view.columns
    before = columns.allocatable.shape, columns.requested.shape, len(columns.numbers[0].requested)
    tracemalloc.start(2)
    try:
        for number in range(_NAMES):
            name = f"example.com/invented-{number}"
            message = cluster.message(requesting(make_pod(f"p{number}"), {name: "1"}))
            assert message.startswith(f"0/50 nodes are available: 50 Insufficient {name}.")
        in_columns = [tracemalloc.Filter(True, f"*/engine/{each}.py") for each in ("columns", "row_amounts")]
        of_classes = [
            tracemalloc.Filter(False, f"*/engine/{each}.py", all_frames=True)
            for each in ("class_state", "cached_results")
        ]
        taken = tracemalloc.take_snapshot().filter_traces([*in_columns, *of_classes]).statistics("filename")
    finally:
        tracemalloc.stop()
    assert (columns.allocatable.shape, columns.requested.shape, len(columns.numbers[0].requested)) == before
    assert sum(each.size for each in taken) < _MOST_BYTES


def test_a_pod_that_invents_many_names_is_told_of_all_of_them() -> None:
    cluster = ChartCluster([make_node("a"), make_node("b", cpu="1m")])
    names = [f"example.com/invented-{number}" for number in range(100)]
    message = cluster.message(requesting(make_pod("p"), dict.fromkeys(names, "1")))
    assert [name for name in names if f"2 Insufficient {name}" not in message] == []
    assert "1 Insufficient cpu" in message


def test_a_running_pod_with_a_name_of_its_own_counts_where_it_is() -> None:
    scene = Scene(make_node("a"), make_node("b"))
    scene.place(requesting(make_pod("running", node="a"), {FOO: "2"}))
    columns = scene.view.columns
    assert [columns.numbers[row].by_name().get(FOO) for row in (0, 1)] == [(2, 0), None]
    assert [each for each in scene.node("a")["resources"] if each["name"] == FOO] == [
        {"name": FOO, "allocatable": "0", "requested": "2", "free": "-2"}
    ]
    scene.state.set_node(offering(make_node("b"), foo="1"))
    assert [columns.numbers[row].by_name()[FOO] for row in (0, 1)] == [(2, 0), (0, 1)]
    assert [columns.numbers[row].free(FOO) for row in (0, 1)] == [-2, 1]
    scene.state.remove_pod("uid-running")
    assert columns.numbers[0].free(FOO) == 0


def test_advice_names_what_no_node_offers() -> None:
    scene = Scene(make_node("a"))
    scene.try_pod(requesting(make_pod("p"), {FOO: "2", BAR: "1"}))
    document = scene.pod("p")
    assert document["requests"] == {"cpu": "1 core", "memory": "1Gi", BAR: "1", FOO: "2"}
    assert document["message"].startswith(f"0/1 nodes are available: 1 Insufficient {BAR}, 1 Insufficient {FOO}.")
    (node,) = document["closestNodes"]
    (lacks,) = node["lacks"]
    assert [each.split(":")[0] for each in lacks["details"]] == [BAR, FOO]
    assert any(f"offers any {FOO}" in sentence for sentence in document["advice"])


def test_a_quota_counts_what_no_node_offers() -> None:
    cluster = QuotaCluster()
    quota = limited("10")
    most = {**quota.spec.max, FOO: Quantity.parse("3")}
    cluster.quota(replace(quota, spec=replace(quota.spec, max=most)))
    running, waiting = (make_pod_info(requesting(of_quota(name), {FOO: "2"})) for name in ("running", "waiting"))
    cluster.state.set_pod(running, "n0")
    cluster.state.show_pod(running, "n0")
    cluster.state.show_pod(waiting, "")
    total = cluster.plugin.accounts.forest.nodes["a"].total
    assert (total.used[FOO], total.request[FOO]) == (2, 4)
    rejection = cluster.engine.decide(waiting, NOW)
    assert isinstance(rejection, Rejection)
    assert f"exceedDimensions: [{FOO}]" in rejection.message


def test_a_class_that_was_evaluated_before_gets_the_node_that_offers_the_name_first() -> None:
    cluster, kept = ChartCluster([make_node("a"), make_node("b")]), list[Evaluation]()

    def refresh(evaluation: Evaluation) -> None:
        # What is shared by classes lives as long as anybody has an evaluation that uses it.
        kept.append(evaluation)
        evaluation.refresh()

    cluster.engine.refresh = refresh
    wanting = requesting(make_pod("p"), {FOO: "2"})
    assert cluster.message(wanting).startswith(f"0/2 nodes are available: 2 Insufficient {FOO}.")
    cluster.state.set_node(offering(make_node("b"), foo="3"))
    first = cluster.decide(wanting)
    assert isinstance(first, Placement)
    assert (first.node_name, cluster.engine.assume(first)) == ("b", None)
    assert cluster.view.columns.numbers[1].free(FOO) == 1
    assert f"2 Insufficient {FOO}" in cluster.message(requesting(make_pod("next"), {FOO: "2"}))


def test_a_pod_waits_until_a_node_offers_what_it_requests() -> None:
    async def run() -> None:
        fixture = RunningScheduler(SchedulerApi(), chart_profile, lambda pod, view: make_pod_info(pod))
        fixture.api.store(make_node("a"))
        async with fixture.running():
            fixture.api.store(requesting(make_pod("p"), {FOO: "1"}))
            await fixture.until_idle(1)
            assert fixture.api.bindings == []
            assert f"Insufficient {FOO}" in fixture.api.conditions[-1][2]
            fixture.api.store(offering(make_node("a"), foo="1"))
            await fixture.until_idle(12)
            assert fixture.api.bindings == [("p", "a")]

    asyncio.run(run())


def holding(amount: str) -> Reservation:
    reservation = available(policy=RESTRICTED, cpu="1")
    held = {**reservation.status.allocatable, FOO: Quantity.parse(amount)}
    template = reservation.spec.template
    assert template is not None
    pod = requesting(Pod(metadata=make_pod("template").metadata, spec=template.spec), {FOO: amount})
    return replace(
        reservation,
        spec=replace(reservation.spec, template=replace(template, spec=pod.spec)),
        status=replace(reservation.status, allocatable=held),
    )


def test_a_reservation_keeps_what_its_node_offers_only_later() -> None:
    cluster = ChartCluster([make_node("a")])
    reservation = holding("2")
    cluster.state.set_object(RESERVATIONS, "r", reservation)
    cluster.bound(reserve_pod(reservation), "a")
    owner = requesting(make_pod("owner", labels=OWNER), {FOO: "2"})
    assert f"Insufficient {FOO}" in cluster.message(owner)
    cluster.state.set_node(offering(make_node("a"), foo="3"))
    assert cluster.view.columns.numbers[0].free(FOO) == 1
    assert f"Insufficient {FOO}" in cluster.message(requesting(make_pod("stranger"), {FOO: "2"}))
    placed = cluster.decide(owner)
    assert isinstance(placed, Placement)
    assert cluster.engine.assume(placed) is None
    assert cluster.view.allocations.of("Reservation", "uid-owner") is not None
    assert cluster.view.columns.numbers[0].free(FOO) == 1


_OFFERS = st.fixed_dictionaries({}, optional={"foo": st.integers(0, 3).map(str), "bar": st.integers(1, 3).map(str)})
_REQUESTS = st.dictionaries(st.sampled_from([FOO, BAR, "example.com/invented"]), st.integers(1, 2).map(str))
_NODES, _PODS = st.sampled_from(["a", "b", "c"]), st.sampled_from(["p", "q", "r"])


@dataclass
class Objects:
    """What the API has in the end."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, tuple[Pod, str]] = field(default_factory=dict)

    def cluster(self) -> ChartCluster:
        cluster = ChartCluster(self.nodes.values())
        for pod, node_name in self.pods.values():
            cluster.bound(pod, node_name)
        return cluster


@st.composite
def events(draw: st.DrawFn) -> Callable[[ChartCluster, Objects], None]:
    kind = draw(st.sampled_from(["node", "node", "pod", "pod", "pod", "remove", "delete"]))
    node_name, pod_name = draw(_NODES), draw(_PODS)
    node = offering(make_node(node_name), **draw(_OFFERS))
    pod = requesting(make_pod(pod_name), draw(_REQUESTS))

    def happen(cluster: ChartCluster, objects: Objects) -> None:
        if kind == "node":
            objects.nodes[node_name] = node
            cluster.state.set_node(node)
        elif kind == "remove":
            objects.nodes.pop(node_name, None)
            cluster.state.remove_node(node_name)
        elif kind == "pod":
            objects.pods[pod_name] = pod, node_name
            cluster.bound(pod, node_name)
        else:
            objects.pods.pop(pod_name, None)
            cluster.state.remove_pod(pod.metadata.uid)

    return happen


def amounts_of(cluster: ChartCluster) -> dict[str, dict[str, tuple[int, int]]]:
    """By node and resource: what is requested and what is allocatable, by the integers and by the arrays."""
    columns, found = cluster.view.columns, {}
    for node, row in columns.row_of.items():
        numbers = columns.numbers[row]
        found[node] = {name: amounts for name, amounts in numbers.by_name().items() if any(amounts)}
        for name, (requested, allocatable) in numbers.by_name().items():
            column = columns.resources.column_of[name]
            in_arrays = requested if column != UNOFFERED else 0
            assert (columns.requested[row, column], columns.allocatable[row, column]) == (in_arrays, allocatable)
            assert numbers.free(name) == allocatable - requested
    return found


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(events(), min_size=3, max_size=12), _REQUESTS)
def test_after_any_events_everything_is_as_in_a_cluster_that_begins_with_what_is_there(
    story: list[Callable[[ChartCluster, Objects], None]], requests: Mapping[str, str]
) -> None:
    objects, pending = Objects({"a": make_node("a")}), requesting(make_pod("pending"), requests)
    cluster = objects.cluster()
    for happen in story:
        happen(cluster, objects)
        # Its class is evaluated again and again, while the names that it requests come to be offered.
        cluster.decide(pending)
    anew = objects.cluster()
    assert amounts_of(cluster) == amounts_of(anew)
    assert cluster.message(pending) == anew.message(pending)
    offered = {name for node in objects.nodes.values() for name in node.status.allocatable}
    assert anew.view.columns.resources.width == len({"ephemeral-storage", *offered, "cpu", "memory", "pods"}) + 1
