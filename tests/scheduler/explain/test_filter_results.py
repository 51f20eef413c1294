"""All plugins are queried about nodes as Filter plugins are shown them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from koordinator.api.meta import LabelSelector
from koordinator.api.pod import Affinity, ContainerPort, Pod, PodAffinity, PodAffinityTerm
from koordinator.api.resource_names import CPU
from koordinator.scheduler.engine.class_plan import plan_class
from koordinator.scheduler.engine.columns import Rows
from koordinator.scheduler.engine.decision import Rejection
from koordinator.scheduler.engine.framework_hooks import FilterTransformer
from koordinator.scheduler.engine.journal import Adjustment
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from koordinator.scheduler.explain.sources import filter_nodes
from tests.scheduler.explain.scene import Scene, make_node, make_pod
from tests.scheduler.fakes import describe, make_profile


class Keeping(FilterTransformer):
    """Three CPUs of every node are kept for somebody."""

    name = "Keeping"

    def before_filter(self, pod: PodInfo, rows: Rows) -> Mapping[int, Adjustment]:
        return {row: Adjustment({CPU: 3000}) for row in rows.tolist()}


def keeping(scene: Scene) -> Profile:
    plugins = {**make_profile(scene.view).plugins, "Keeping": Keeping(None, scene.view)}
    return Profile("koord-scheduler", plugins, PluginOrder(filter=("Keeping", "Fit")))


def details(scene: Scene, name: str) -> list[str]:
    node = scene.pod(name)["closestNodes"][0]
    return [text for lack in node["lacks"] for text in lack["details"]]


def test_every_plugin_objects_not_only_the_first() -> None:
    scene = Scene(make_node("a", cpu="1", unschedulable=True))
    filter_results = filter_nodes(scene.profile, scene.view, scene.info(make_pod("p", cpu="2")))
    assert [each.plugin for each in filter_results.objections(0)] == ["NodeUnschedulable", "NodeResourcesFit"]


def test_transformers_are_called_first() -> None:
    scene = Scene(make_node("a", cpu="4"))
    pod = describe(make_pod("p", cpu="2"))
    assert filter_nodes(keeping(scene), scene.view, pod).objections(0)[0].plugin == "Fit"
    assert filter_nodes(make_profile(scene.view), scene.view, pod).objections(0) == ()


def test_columns_are_as_they_were_afterwards() -> None:
    scene = Scene(make_node("a", cpu="4"))
    filter_nodes(keeping(scene), scene.view, describe(make_pod("p", cpu="2"))).objections(0)
    assert scene.view.columns.requested.sum() == 0


def test_capacity_that_is_nominated_to_a_more_important_pod_is_not_free() -> None:
    scene = Scene(make_node("a", cpu="4"))
    scene.view.nominations.set(scene.info(make_pod("important", cpu="3", priority=9)), "a")
    scene.add(make_pod("p", cpu="2"))
    assert scene.pod("p")["fittingNow"]["nodes"] == 0
    assert details(scene, "p") == ["cpu: short by 1 core (needs 2 cores, free 1 core)"]


@pytest.mark.parametrize(
    ("own", "other"), [(5, 1), (0, 0)], ids=["to the pod itself and a lesser one", "to an equal one later"]
)
def test_capacity_that_is_nominated_to_nobody_before_the_pod_is_free(own: int, other: int) -> None:
    scene = Scene(make_node("a", cpu="4"))
    scene.view.nominations.set(scene.info(make_pod("p", cpu="2", priority=own)), "a")
    scene.view.nominations.set(scene.info(make_pod("other", cpu="3", priority=other)), "a")
    scene.add(make_pod("p", cpu="2", priority=own))
    assert scene.pod("p")["fittingNow"]["nodes"] == 1


def test_capacity_of_a_pod_that_has_come_is_not_counted_twice() -> None:
    scene = Scene(make_node("a", cpu="4"))
    scene.view.nominations.set(scene.info(make_pod("come", cpu="2", priority=9)), "a")
    scene.place(make_pod("come", cpu="2", node="a", priority=9))
    scene.add(make_pod("p", cpu="2"))
    assert scene.pod("p")["fittingNow"]["nodes"] == 1


def test_a_nominated_pod_that_has_gone_to_another_node_takes_nothing_of_this_one() -> None:
    scene = Scene(make_node("a", cpu="4"), make_node("b", cpu="4"))
    come = scene.info(make_pod("come", cpu="3", priority=9))
    scene.view.nominations.set(come, "a")
    scene.state.assume(come, "b")
    scene.add(make_pod("p", cpu="2"))
    assert scene.pod("p")["fittingNow"] == {"nodes": 1, "examples": ["a"]}


def with_port(pod: Pod, port: int = 80) -> Pod:
    container = replace(pod.spec.containers[0], ports=[ContainerPort(container_port=port, host_port=port)])
    return replace(pod, spec=replace(pod.spec, containers=[container]))


def test_a_nominated_pod_takes_more_than_resources() -> None:
    scene = Scene(make_node("a"), make_node("b"))
    scene.view.nominations.set(scene.info(with_port(make_pod("important", priority=9))), "a")
    filter_results = filter_nodes(scene.profile, scene.view, scene.info(with_port(make_pod("p"))))
    assert [each.plugin for each in filter_results.objections(0)] == ["NodePorts"]
    assert filter_results.objections(1) == ()
    scene.state.remove_node("b")
    assert isinstance(scene.try_pod(with_port(make_pod("p"))), Rejection)


def test_a_nominated_pod_that_may_never_come_meets_no_affinity() -> None:
    """As in decisions: a pod must not go to where it may be only if a nominated one comes."""
    scene = Scene(make_node("a", labels={"kubernetes.io/hostname": "a"}))
    leader = scene.info(make_pod("leader", cpu="4", priority=9, labels={"app": "leader"}))
    scene.view.nominations.set(leader, "a")
    follower = make_pod("follower", cpu="2")
    term = PodAffinityTerm(
        label_selector=LabelSelector(match_labels={"app": "leader"}), topology_key="kubernetes.io/hostname"
    )
    rule = PodAffinity(required_during_scheduling_ignored_during_execution=[term])
    follower = replace(follower, spec=replace(follower.spec, affinity=Affinity(pod_affinity=rule)))
    filter_results = filter_nodes(scene.profile, scene.view, scene.info(follower))
    assert [each.plugin for each in filter_results.objections(0)] == ["NodeResourcesFit", "InterPodAffinity"]
    assert isinstance(scene.try_pod(follower), Rejection)


def test_an_equal_pod_of_another_scheduler_has_no_precedence() -> None:
    scene = Scene(make_node("a", cpu="4"))
    scene.view.nominations.set(scene.info(make_pod("foreign", cpu="3")), "a", foreign=True)
    scene.add(make_pod("p", cpu="2"))
    assert scene.pod("p")["fittingNow"]["nodes"] == 1


def test_a_pod_that_pre_filter_rejects_is_evaluated_on_no_node() -> None:
    scene = Scene(make_node("a"))
    profile = make_profile(scene.view)
    pod = describe(make_pod("p", labels={"never": "not today"}))
    assert plan_class(profile, scene.view, pod).rejection is not None
    assert filter_nodes(profile, scene.view, pod).rows.size == 0
