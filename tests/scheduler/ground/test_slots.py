"""Slots: what is told at once of all nodes, beside placing the pods one after another."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.kinds import NODE_METRICS
from koordinator.api.meta import ObjectMeta
from koordinator.api.nodemetric import NodeMetric, NodeMetricInfo, NodeMetricStatus, ResourceMap
from koordinator.api.pod import ContainerPort, PersistentVolumeClaimVolumeSource, Pod, Volume
from koordinator.api.quantity import Quantity
from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration import default_configuration
from koordinator.scheduler.engine import slots as slots_module
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.slots import Slots
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.load_aware.plugin import LoadAwareScheduling
from koordinator.scheduler.plugins.table import BUILT_IN
from tests.examples import examples
from tests.scheduler.fakes import FirstChoice, make_node, make_pod
from tests.scheduler.ground.clusters import NOW

_CONFIGURATION = default_configuration()
_NAMES = ("a", "b", "c", "d")


class Loaded:
    """The default profile and LoadAwareScheduling."""

    def __init__(self) -> None:
        self.view = ClusterView(NodeColumns())
        self.view.now = NOW
        self.state = ClusterState(self.view)
        base = build_profiles(_CONFIGURATION, BUILT_IN, self.view)[0]
        load = LoadAwareScheduling(_CONFIGURATION.profiles[0].arguments["LoadAwareScheduling"], self.view)
        order = replace(base.order, filter=(*base.order.filter, load.name))
        profile = Profile(base.scheduler_name, {**base.plugins, load.name: load}, order)
        self.state.add_event_handlers(profile.event_handlers)
        self.engine = Engine(profile, self.state, FirstChoice())

    def info(self, pod: Pod) -> PodInfo:
        return make_pod_info(pod)

    def add(self, name: str, cpu: int, used: int | None, **changes: Any) -> None:
        """A node of so many CPUs, of which it reports to use some."""
        self.state.set_node(make_node(name, cpu=str(cpu), **changes))
        if used is not None:
            usage = ResourceMap(resources={"cpu": Quantity.from_milli(used), "memory": Quantity.from_value(2**30)})
            status = NodeMetricStatus(
                update_time=NOW - timedelta(seconds=9), node_metric=NodeMetricInfo(node_usage=usage)
            )
            self.state.set_node_object(
                NODE_METRICS.name, name, NodeMetric(metadata=ObjectMeta(name=name), status=status)
            )

    def slots(self, pods: list[Pod]) -> Slots:
        found = self.engine.handle.slots([self.info(pod) for pod in pods])
        assert found is not None
        return found


def reported(found: Slots) -> tuple[list[int], set[tuple[str, str, tuple[int, ...]]]]:
    return found.counts.tolist(), {
        (status.plugin, ", ".join(reason.text for reason in status.reasons), tuple(status.rows.tolist()))
        for status in found.statuses
    }


def one_by_one(cluster: Loaded, pods: list[Pod]) -> Slots:
    before = slots_module._without_placing
    slots_module._without_placing = lambda view, evaluation, rows, pod: rows[:0]
    try:
        return cluster.slots(pods)
    finally:
        slots_module._without_placing = before


_NODES = st.lists(
    st.tuples(st.integers(0, 12), st.none() | st.integers(0, 9000), st.integers(0, 4), st.booleans()),
    min_size=4,
    max_size=4,
)


@settings(max_examples=examples(80), deadline=None)
@given(
    _NODES, st.integers(1, 9), st.sampled_from(["0", "100m", "700m", "1", "3"]), st.sampled_from(["0", "1Gi", "3Gi"])
)
def test_what_is_reported_at_once_is_what_placing_finds(
    nodes: list[tuple[int, int | None, int, bool]], count: int, cpu: str, memory: str
) -> None:
    cluster = Loaded()
    for name, (cpus, used, running, unschedulable) in zip(_NAMES, nodes, strict=True):
        cluster.add(name, cpus, used, unschedulable=unschedulable, pods="7")
        for number in range(running):
            cluster.state.set_pod(cluster.info(make_pod(f"{name}-{number}", cpu="500m", memory="1Gi")), name)
    pods = [make_pod(f"p-{number}", cpu=cpu, memory=memory) for number in range(count)]
    assert reported(cluster.slots(pods)) == reported(one_by_one(cluster, pods))


def test_pods_that_are_not_alike_are_placed_in_their_order() -> None:
    cluster = Loaded()
    cluster.add("a", 6, None)
    pods = [make_pod("large", cpu="3"), make_pod("small-0", cpu="2"), make_pod("small-1", cpu="2")]
    assert reported(cluster.slots(pods)) == ([2], {("NodeResourcesFit", "Insufficient cpu", (0,))})


def test_a_host_port_is_taken_once() -> None:
    cluster = Loaded()
    cluster.add("a", 6, None)

    def with_port(name: str) -> Pod:
        pod = make_pod(name)
        container = msgspec.structs.replace(
            pod.spec.containers[0], ports=[ContainerPort(container_port=1, host_port=1)]
        )
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=[container]))

    text = "node(s) didn't have free ports for the requested pod ports"
    assert reported(cluster.slots([with_port("p"), with_port("q")])) == ([1], {("NodePorts", text, (0,))})


def test_more_important_nominated_pods_count_and_those_of_the_gang_do_not() -> None:
    cluster = Loaded()
    cluster.add("a", 4, None)
    pods = [make_pod(f"p-{number}") for number in range(4)]
    cluster.view.nominations.set(cluster.info(pods[3]), "a")
    assert cluster.slots(pods).counts.tolist() == [4]
    cluster.view.nominations.set(cluster.info(make_pod("other", priority=9)), "a")
    assert cluster.slots(pods).counts.tolist() == [3]


def test_nothing_is_left_of_it() -> None:
    cluster = Loaded()
    cluster.add("a", 8, 100)
    before = cluster.view.columns.requested.tolist()
    pods = [make_pod("p"), make_pod("q", cpu="2")]
    assert cluster.slots(pods).counts.tolist() == [2]
    assert cluster.view.columns.requested.tolist() == before
    assert cluster.state.pod_count == 0


def test_a_pod_that_may_go_nowhere_has_no_slots() -> None:
    cluster = Loaded()
    cluster.add("a", 4, None)
    pod = make_pod("p")
    volume = Volume(name="data", persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name="missing"))
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, volumes=[volume]))
    assert cluster.engine.handle.slots([cluster.info(pod)]) is None
