"""Which events wake a pod that its constraints kept out: those of upstream's queueing hints."""

from __future__ import annotations

import pytest

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from koordinator.api.node import Node, NodeSpec, Taint
from koordinator.api.pod import Pod, PodSpec, Toleration, TopologySpreadConstraint
from koordinator.scheduler.engine.events import ClusterEvent, EventKind
from tests.scheduler.plugins.pod_topology_spread.constraints import has, spread
from tests.scheduler.plugins.pod_topology_spread.fixtures import ClusterFixture

ZONE, BOTH = [spread("zone")], [spread("zone"), spread("node")]
TWO_SELECTORS = [spread("zone"), spread("node", selector=has("bar"))]


def waiting(constraints: list[TopologySpreadConstraint]) -> Pod:
    return Pod(
        metadata=ObjectMeta(name="p", namespace="default", uid="p", labels={"foo": ""}),
        spec=PodSpec(topology_spread_constraints=constraints),
    )


def node(words: str, taint: str = "") -> Node | None:
    """``zone=z1 foo``; None for the empty text."""
    labels = dict(word.partition("=")[::2] for word in words.split())
    taints = [Taint(key=taint, effect="NoSchedule")] if taint else []
    return Node(metadata=ObjectMeta(name="n", labels=labels), spec=NodeSpec(taints=taints)) if words else None


@pytest.mark.parametrize(
    ("constraints", "old", "new", "helps"),
    [
        (ZONE, node("zone=z1"), node("zone=z2"), True),
        (ZONE, node("foo=1"), node("foo=2"), False),
        (ZONE, node("zone=z1"), node("foo=2"), True),
        (ZONE, node("foo=1"), node("zone=z1"), True),
        (BOTH, node("zone=z1 node=n1 foo=1"), node("zone=z1 node=n1"), False),
        (ZONE, None, node("foo=1"), False),
        (ZONE, None, node("zone=z1"), True),
        (ZONE, node("foo=1"), None, False),
        (ZONE, node("zone=z1"), None, True),
        (BOTH, None, node("zone=z1"), False),
        (BOTH, None, node("zone=z1 node=n1"), True),
        (BOTH, node("zone=z1"), node("zone=z2"), False),
        (BOTH, node("zone=z1 node=n1"), node("zone=z1 node=n2"), True),
        (BOTH, node("zone=z1 node=n1", "a"), node("zone=z1 node=n1", "b"), True),
        (BOTH, node("node=n1", "a"), node("node=n1", "b"), False),
    ],
)
def test_nodes(constraints: list[TopologySpreadConstraint], old: Node | None, new: Node | None, helps: bool) -> None:
    fixture = ClusterFixture()
    kind = EventKind.NODE_ADD if old is None else EventKind.NODE_DELETE if new is None else EventKind.NODE_LABEL
    assert fixture.plugin.queueing_hint(fixture.info(waiting(constraints)), ClusterEvent(kind, old, new)) is helps


def running(words: str | None, namespace: str = "default") -> Pod | None:
    if words is None:
        return None
    labels = dict(word.partition("=")[::2] for word in words.split())
    metadata = ObjectMeta(name="q", namespace=namespace, uid="q", labels=labels)
    return Pod(metadata=metadata, spec=PodSpec(node_name="n"))


@pytest.mark.parametrize(
    ("constraints", "old", "new", "helps"),
    [
        (ZONE, None, running("foo"), True),
        (ZONE, None, running("foo", "other"), False),
        (ZONE, None, running("bar"), False),
        (ZONE, running("foo"), None, True),
        (ZONE, running("foo", "other"), None, False),
        (ZONE, running("bar"), None, False),
        (ZONE, running("foo bar=1"), running("foo bar=2"), False),
        (ZONE, running(""), running("foo"), True),
        (ZONE, running("foo"), running(""), True),
        (ZONE, running("foo=1"), running("foo=2"), False),
        (TWO_SELECTORS, running("foo"), running("foo bar"), True),
        (TWO_SELECTORS, running("foo"), running("foo baz"), False),
        (TWO_SELECTORS, running("foo bar"), running("foo bar=2"), False),
    ],
)
def test_pods(constraints: list[TopologySpreadConstraint], old: Pod | None, new: Pod | None, helps: bool) -> None:
    fixture = ClusterFixture()
    kind = EventKind.POD_ADD if old is None else EventKind.POD_DELETE if new is None else EventKind.POD_LABEL
    before, after = (fixture.info(pod) if pod is not None else None for pod in (old, new))
    assert fixture.plugin.queueing_hint(fixture.info(waiting(constraints)), ClusterEvent(kind, before, after)) is helps


@pytest.mark.parametrize(("policy", "helps"), [("Honor", True), ("Ignore", False), (None, False)])
def test_a_new_toleration_of_the_pod_itself(policy: str | None, helps: bool) -> None:
    fixture = ClusterFixture()
    before = waiting(ZONE)
    after = Pod(metadata=before.metadata, spec=PodSpec(tolerations=[Toleration(key="x", operator="Exists")]))
    pod = fixture.info(waiting([spread("zone", taints=policy)]))
    event = ClusterEvent(EventKind.POD_UPDATE, fixture.info(before), fixture.info(after))
    assert fixture.plugin.queueing_hint(pod, event) is helps


@pytest.mark.parametrize("kind", [EventKind.POD_ADD, EventKind.NODE_LABEL, "Service/Add"])
def test_what_says_nothing_helps(kind: str) -> None:
    fixture = ClusterFixture()
    assert fixture.plugin.queueing_hint(fixture.info(waiting(ZONE)), ClusterEvent(kind))


def test_a_pod_whose_constraints_cannot_be_read_is_tried_again() -> None:
    fixture = ClusterFixture()
    broken = LabelSelector(match_expressions=[LabelSelectorRequirement(key="foo", operator="Like")])
    pod = fixture.info(waiting([spread("zone", selector=broken)]))
    assert fixture.plugin.queueing_hint(pod, ClusterEvent(EventKind.NODE_ADD, None, node("foo=1")))


def test_all_kinds_of_event_that_hints_evaluate_wake() -> None:
    assert ClusterFixture().plugin.events_to_register() == {
        *(EventKind.POD_ADD, EventKind.POD_DELETE, EventKind.POD_LABEL, EventKind.POD_UPDATE),
        *(EventKind.NODE_ADD, EventKind.NODE_DELETE, EventKind.NODE_LABEL, EventKind.NODE_TAINT),
    }
