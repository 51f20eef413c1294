"""What ``koord explain`` says about a node that topology spread constraints reject."""

from __future__ import annotations

from collections.abc import Sequence

from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Pod, PodSpec, TopologySpreadConstraint
from koordinator.scheduler.explain.sources import filter_nodes
from tests.scheduler.plugins.explaining import lacks_of
from tests.scheduler.plugins.pod_topology_spread.constraints import has, spread
from tests.scheduler.plugins.pod_topology_spread.fixtures import ClusterFixture

WEB = LabelSelector(match_labels={"app": "web"})


def make_fixture(pods: str) -> ClusterFixture:
    """Nodes a1 and a2 in zone a, b1 in zone b, x without zone; ``pods``: the nodes of pods with the label app=web."""
    fixture = ClusterFixture()
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("x", "")):
        labels = {"zone": zone} if zone else {}
        fixture.set_node(Node(metadata=ObjectMeta(name=name, uid=name, labels=labels)))
    for number, name in enumerate(pods.split()):
        fixture.place(make_pod(f"web-{number}"), name)
    return fixture


def make_pod(name: str, constraints: Sequence[TopologySpreadConstraint] = (), app: str = "web") -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=name, labels={"app": app}),
        spec=PodSpec(topology_spread_constraints=list(constraints)),
    )


def lacks(fixture: ClusterFixture, *constraints: TopologySpreadConstraint, app: str = "web") -> dict[str, list[str]]:
    return lacks_of(fixture.profile, fixture.view, fixture.info(make_pod("p", constraints, app)))


def test_counts_least_and_skew_are_named() -> None:
    text = "zone=a has 2 pods with app=web, the least is 0 in zone=b: with this one the skew would be 3, maxSkew is 1"
    found = lacks(make_fixture("a1 a2"), spread("zone", selector=WEB))
    assert found == {"a1": [text], "a2": [text], "b1": [], "x": ["the node has no label zone"]}


def test_a_pod_that_is_not_meant_itself_adds_nothing() -> None:
    found = lacks(make_fixture("a1 a2 a2 b1"), spread("zone", selector=WEB), app="other")
    assert found["a1"] == ["zone=a has 3 pods with app=web, the least is 1 in zone=b: the skew is 2, maxSkew is 1"]


def test_too_few_domains_are_named() -> None:
    found = lacks(make_fixture("a1 b1"), spread("zone", selector=WEB, domains=3))
    assert found["b1"] == [
        "zone=b has 1 pod with app=web, and with 2 of at least 3 domains (minDomains) 0 is the least: "
        "with this one the skew would be 2, maxSkew is 1"
    ]


def test_every_constraint_that_is_not_met_is_named() -> None:
    found = lacks(make_fixture("a1 a1"), spread("zone", selector=WEB), spread("zone", selector=has("app")))
    assert [text.partition(",")[0] for text in found["a1"]] == [
        "zone=a has 2 pods with app=web",
        "zone=a has 2 pods with app",
    ]


def test_the_least_uneven_node_is_the_closest() -> None:
    fixture = make_fixture("a1 a1 a1 a2 a2")
    for name in ("a1", "a2", "b1"):
        labels = {"zone": name[0], "host": name}
        fixture.set_node(Node(metadata=ObjectMeta(name=name, uid=name, labels=labels)))
    filter_results = filter_nodes(
        fixture.profile, fixture.view, fixture.info(make_pod("p", [spread("host", selector=WEB)]))
    )
    shortfalls = [
        lack.shortfall
        for index in range(2)
        for objection in filter_results.objections(index)
        for lack in objection.lacks
    ]
    assert shortfalls == [3 / 4, 2 / 3]
