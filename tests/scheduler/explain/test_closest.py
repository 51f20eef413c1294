"""Which nodes come closest to taking a pod, in which order, and what each of them lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import (
    Affinity,
    ContainerPort,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    TopologySpreadConstraint,
)
from koordinator.api.pod import NodeAffinity as NodeAffinityTerms
from tests.scheduler.explain.scene import Scene, make_node, make_pod, tainted


def closest(scene: Scene, pod: Pod) -> list[Any]:
    scene.try_pod(pod)
    nodes: list[Any] = scene.pod(pod.metadata.name)["closestNodes"]
    return nodes


def names(nodes: Sequence[Any]) -> list[str]:
    return [node["node"] for node in nodes]


def details(node: Any) -> list[str]:
    return [text for lack in node["lacks"] for text in lack["details"] or lack["reasons"]]


def selecting(pod: Pod, *requirements: NodeSelectorRequirement, labels: dict[str, str] | None = None) -> Pod:
    required = NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=list(requirements))])
    affinity = Affinity(node_affinity=NodeAffinityTerms(required_during_scheduling_ignored_during_execution=required))
    spec = msgspec.structs.replace(pod.spec, affinity=affinity if requirements else None, node_selector=labels or {})
    return msgspec.structs.replace(pod, spec=spec)


def test_the_node_with_the_least_missing_is_the_closest() -> None:
    scene = Scene(make_node("small", cpu="2"), make_node("large", cpu="7"), make_node("medium", cpu="4"))
    assert names(closest(scene, make_pod("p", cpu="8"))) == ["large", "medium", "small"]


def test_a_node_that_only_one_plugin_rejects_comes_before_one_that_two_do() -> None:
    scene = Scene(make_node("cordoned", cpu="7", unschedulable=True), make_node("small", cpu="1"))
    assert names(closest(scene, make_pod("p", cpu="8"))) == ["small", "cordoned"]


def test_a_node_where_eviction_helps_comes_before_one_that_is_hopeless() -> None:
    scene = Scene(make_node("cordoned", unschedulable=True), make_node("full", cpu="4"))
    scene.place(make_pod("other", cpu="4", node="full"))
    assert names(closest(scene, make_pod("p", cpu="4"))) == ["full", "cordoned"]


def test_equals_are_in_the_order_of_their_names() -> None:
    scene = Scene(*(make_node(name, cpu="1") for name in "cab"))
    assert names(closest(scene, make_pod("p", cpu="2"))) == ["a", "b", "c"]


def test_five_nodes_are_shown() -> None:
    scene = Scene(*(make_node(f"n{number}", cpu="1") for number in range(9)))
    assert len(closest(scene, make_pod("p", cpu="2"))) == 5


def test_the_closest_of_many_nodes_is_found() -> None:
    scene = Scene(*(make_node(f"n{number:03}", cpu="1") for number in range(200)), make_node("last", cpu="3"))
    assert names(closest(scene, make_pod("p", cpu="4")))[0] == "last"


def test_a_resource_is_short_by_the_difference() -> None:
    scene = Scene(make_node("a", cpu="4"))
    scene.place(make_pod("other", cpu="2500m", node="a"))
    assert details(closest(scene, make_pod("p", cpu="2"))[0]) == [
        "cpu: short by 0.5 cores (needs 2 cores, free 1.5 cores)"
    ]


def test_a_node_that_is_too_small_says_what_it_has_in_all() -> None:
    (node,) = closest(Scene(make_node("a", memory="1Gi")), make_pod("p", memory="2Gi"))
    assert details(node) == ["memory: short by 1Gi (needs 2Gi, free 1Gi; the node has 1Gi in all)"]


def test_every_resource_that_is_short_is_named() -> None:
    (node,) = closest(Scene(make_node("a", cpu="1", memory="1Gi")), make_pod("p", cpu="2", memory="2Gi"))
    assert [text.partition(":")[0] for text in details(node)] == ["cpu", "memory"]


def test_a_node_with_all_its_pods_says_so() -> None:
    (node,) = closest(Scene(make_node("a", pods="0")), make_pod("p"))
    assert details(node) == ["pods: the node has as many as it may have"]


def test_a_cordoned_node_says_so() -> None:
    (node,) = closest(Scene(make_node("a", unschedulable=True)), make_pod("p"))
    assert details(node) == ["the node is cordoned"]


def test_each_taint_that_is_not_tolerated_is_named() -> None:
    node = tainted(tainted(make_node("a"), "team", "data"), "gone", effect="NoExecute")
    (close,) = closest(Scene(tainted(node, "soft", effect="PreferNoSchedule")), make_pod("p"))
    assert details(close) == ["taint team=data:NoSchedule is not tolerated", "taint gone:NoExecute is not tolerated"]


def test_a_label_of_the_node_selector_is_named_with_what_the_node_has() -> None:
    pod = selecting(make_pod("p"), labels={"disk": "ssd", "zone": "a"})
    (node,) = closest(Scene(make_node("a", labels={"zone": "b"})), pod)
    assert details(node) == [
        "label disk=ssd is needed, the node has none",
        "label zone=a is needed, the node has zone=b",
    ]


@pytest.mark.parametrize(
    ("operator", "values", "text"),
    [
        ("In", ["b"], "label zone=b is needed, the node has zone=5"),
        ("In", ["b", "c"], "label zone in (b, c) is needed, the node has zone=5"),
        ("NotIn", ["5"], "label zone not in (5) is needed, the node has zone=5"),
        ("DoesNotExist", [], "label zone absent is needed, the node has zone=5"),
        ("Gt", ["7"], "label zone > 7 is needed, the node has zone=5"),
        ("Lt", ["3"], "label zone < 3 is needed, the node has zone=5"),
    ],
)
def test_a_term_of_node_affinity_is_named(operator: str, values: list[str], text: str) -> None:
    pod = selecting(make_pod("p"), NodeSelectorRequirement(key="zone", operator=operator, values=values))
    (node,) = closest(Scene(make_node("a", labels={"zone": "5"})), pod)
    assert details(node) == [text]


def test_of_several_terms_the_one_with_the_least_unmet_is_named() -> None:
    far = NodeSelectorTerm(match_expressions=[requirement("x"), requirement("y")])
    near = NodeSelectorTerm(match_expressions=[requirement("zone"), requirement("disk")])
    required = NodeSelector(node_selector_terms=[far, near])
    affinity = Affinity(node_affinity=NodeAffinityTerms(required_during_scheduling_ignored_during_execution=required))
    pod = make_pod("p")
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, affinity=affinity))
    (node,) = closest(Scene(make_node("a", labels={"zone": "1"})), pod)
    assert details(node) == ["label disk is needed, the node has none"]


def requirement(key: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator="Exists")


def with_port(pod: Pod, port: int) -> Pod:
    (container,) = pod.spec.containers
    container = msgspec.structs.replace(container, ports=[ContainerPort(container_port=80, host_port=port)])
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=[container]))


def test_a_host_port_that_is_taken_is_named() -> None:
    scene = Scene(make_node("a"))
    scene.place(with_port(make_pod("other", node="a"), 8080))
    (node,) = closest(scene, with_port(make_pod("p"), 8080))
    assert details(node) == ["host port 8080/TCP is taken"]


def test_a_node_that_is_the_least_uneven_is_the_closest_and_says_by_how_much() -> None:
    pod = make_pod("p", labels={"app": "web"})
    constraint = TopologySpreadConstraint(
        max_skew=1,
        topology_key="zone",
        when_unsatisfiable="DoNotSchedule",
        label_selector=LabelSelector(match_labels={"app": "web"}),
    )
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, topology_spread_constraints=[constraint]))
    scene = Scene(*(make_node(zone, labels={"zone": zone}, cpu="0" if zone == "c" else "9") for zone in "abc"))
    for number, zone in enumerate("aaab"):
        scene.place(make_pod(f"web-{number}", labels={"app": "web"}, node=zone))
    nodes = closest(scene, pod)
    assert [details(node)[0] for node in nodes if node["node"] != "c"] == [
        "zone=b has 1 pod with app=web, the least is 0 in zone=c: with this one the skew would be 2, maxSkew is 1",
        "zone=a has 3 pods with app=web, the least is 0 in zone=c: with this one the skew would be 4, maxSkew is 1",
    ]


def busy(name: str) -> tuple[Scene, Node]:
    node = make_node(name, cpu="4", memory="8Gi")
    scene = Scene(node)
    scene.report(name, cpu="2500m", memory="1Gi")
    return scene, node


def test_a_load_threshold_is_named_with_what_the_pod_would_add() -> None:
    scene, _ = busy("a")
    (node,) = closest(scene, make_pod("p", cpu="1"))
    assert details(node) == [
        "cpu: expected usage 84 %, threshold 65 % (2.5 cores of 4 cores used now, the pod is expected to add "
        "0.85 cores)"
    ]


def test_the_node_that_is_least_over_its_threshold_is_the_closest() -> None:
    scene = Scene(make_node("hot"), make_node("warm"))
    scene.report("hot", cpu="3900m", memory="1Gi")
    scene.report("warm", cpu="2700m", memory="1Gi")
    assert names(closest(scene, make_pod("p"))) == ["warm", "hot"]


def test_a_plugin_that_does_not_explain_itself_shows_its_reasons() -> None:
    scene = Scene(make_node("a"))
    scene.report("a", cpu="1", memory="1Gi", age=1e6)
    (node,) = closest(scene, make_pod("p"))
    assert details(node) == ["node(s) nodeMetric expired"]


def test_nodes_that_would_take_the_pod_by_now_are_not_among_the_closest() -> None:
    scene = Scene(make_node("a", cpu="1"))
    scene.try_pod(make_pod("p", cpu="2"))
    scene.state.set_node(make_node("b", cpu="4"))
    document = scene.pod("p")
    assert (document["fittingNow"], names(document["closestNodes"])) == ({"nodes": 1, "examples": ["b"]}, ["a"])
