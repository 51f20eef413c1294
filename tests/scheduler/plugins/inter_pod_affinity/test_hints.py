"""Which events wake a pod that was rejected."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.core import Namespace
from koordinator.api.meta import LabelSelector, ObjectMeta
from koordinator.api.pod import Pod, PodAffinityTerm
from koordinator.scheduler.engine.events import ClusterEvent, EventKind, node_changes
from tests.examples import examples
from tests.scheduler.plugins.inter_pod_affinity import reference
from tests.scheduler.plugins.inter_pod_affinity.fixtures import (
    NODE_NAMES,
    POD_NAMES,
    ClusterFixture,
    make_node,
    make_pod,
    must,
    node_labels,
    pod_labels,
    pods,
    renamed,
    step,
    strict_pods,
    term,
)

NEAR_A = make_pod("waiting", {"app": "b"}, near=must(term("zone", app="a")))
NEAR_ITSELF = make_pod("waiting", {"app": "a"}, near=must(term("zone", app="a")))
APART_FROM_A = make_pod("waiting", {"app": "b"}, apart=must(term("zone", app="a")))
APART_FROM_TWO = make_pod("waiting", {"app": "b"}, apart=must(term("zone", app="a"), term("zone", tier="x")))
PLAIN_C = make_pod("waiting", {"app": "c"})
A = make_pod("a", {"app": "a"})
B = make_pod("b", {"app": "b"})
MINDS_C = make_pod("a", {"app": "a"}, apart=must(term("zone", app="c")))

POD_EVENTS = {
    "one to be near to comes": (NEAR_A, EventKind.POD_ADD, None, A, True),
    "another comes": (NEAR_A, EventKind.POD_ADD, None, B, False),
    "one to be apart from comes": (APART_FROM_A, EventKind.POD_ADD, None, A, False),
    "one becomes what to be near to": (NEAR_A, EventKind.POD_LABEL, B, A, True),
    "one is no longer what to be near to": (NEAR_A, EventKind.POD_LABEL, A, B, False),
    "the pod may be the first of its kind": (NEAR_ITSELF, EventKind.POD_LABEL, A, B, True),
    "one is no longer what to be apart from": (APART_FROM_A, EventKind.POD_LABEL, A, B, True),
    "one becomes what to be apart from": (APART_FROM_A, EventKind.POD_LABEL, B, A, False),
    "one to be apart from goes": (APART_FROM_A, EventKind.POD_DELETE, A, None, True),
    "one of two to be apart from goes": (APART_FROM_TWO, EventKind.POD_DELETE, A, None, True),
    "another goes": (APART_FROM_A, EventKind.POD_DELETE, B, None, False),
    "one that minds the pod goes": (PLAIN_C, EventKind.POD_DELETE, MINDS_C, None, True),
    "one that minds others goes": (NEAR_A, EventKind.POD_DELETE, NEAR_A, None, False),
    "one to be near to goes": (NEAR_A, EventKind.POD_DELETE, A, None, False),
    "the last of its kind goes": (NEAR_ITSELF, EventKind.POD_DELETE, A, None, True),
    "one that nobody remembers goes": (NEAR_A, EventKind.POD_DELETE, None, None, True),
}


@pytest.mark.parametrize(("pod", "kind", "old", "new", "helps"), POD_EVENTS.values(), ids=POD_EVENTS)
def test_pods(pod: Pod, kind: str, old: Pod | None, new: Pod | None, helps: bool) -> None:
    fixture = ClusterFixture()
    event = ClusterEvent(kind, fixture.info(old) if old else None, fixture.info(new) if new else None)
    assert fixture.plugin.queueing_hint(fixture.info(pod), event) is helps


NODE_EVENTS = {
    "one with the topology": (NEAR_A, None, {"zone": "z"}, True),
    "one without the topology": (NEAR_A, None, {"host": "h"}, False),
    "anti-affinity does not mind where there is no topology": (APART_FROM_A, None, {}, True),
    "no terms of its own": (PLAIN_C, None, {}, True),
    "gains the topology": (NEAR_A, {}, {"zone": "z"}, True),
    "moves": (NEAR_A, {"zone": "y"}, {"zone": "z"}, True),
    "other labels": (NEAR_A, {"zone": "z"}, {"zone": "z", "host": "h"}, False),
    "loses the topology of affinity": (NEAR_A, {"zone": "z"}, {}, False),
    "loses the topology of anti-affinity": (APART_FROM_A, {"zone": "z"}, {}, True),
    "gains the topology of anti-affinity": (APART_FROM_A, {}, {"zone": "z"}, False),
    "moves out of what others mind": (PLAIN_C, {"zone": "y"}, {"zone": "z"}, True),
}


@pytest.mark.parametrize(("pod", "old", "new", "helps"), NODE_EVENTS.values(), ids=NODE_EVENTS)
def test_nodes(pod: Pod, old: dict[str, str] | None, new: dict[str, str], helps: bool) -> None:
    fixture = ClusterFixture()
    fixture.set_node(make_node("n"))
    fixture.place(MINDS_C, "n")
    before = make_node("n", **old) if old is not None else None
    kind = EventKind.NODE_ADD if before is None else EventKind.NODE_LABEL
    assert fixture.plugin.queueing_hint(fixture.info(pod), ClusterEvent(kind, before, make_node("n", **new))) is helps


def test_a_namespace_that_a_term_selects_now() -> None:
    fixture = ClusterFixture()
    selecting = PodAffinityTerm(
        label_selector=LabelSelector(),
        topology_key="zone",
        namespace_selector=LabelSelector(match_labels={"team": "x"}),
    )
    pod = fixture.info(make_pod("waiting", near=must(selecting)))
    new = Namespace(metadata=ObjectMeta(name="other", labels={"team": "x"}))
    other = Namespace(metadata=ObjectMeta(name="other", labels={"team": "y"}))
    assert fixture.plugin.queueing_hint(pod, ClusterEvent("Namespace/Add", None, new))
    assert not fixture.plugin.queueing_hint(pod, ClusterEvent("Namespace/Add", None, other))


def event_of(fixture: ClusterFixture, data: st.DataObject, kinds: st.SearchStrategy[Pod]) -> list[ClusterEvent]:
    """Change something in the cluster; what the queue would be notified of it."""
    name, pod_name = data.draw(st.sampled_from(NODE_NAMES)), data.draw(st.sampled_from(POD_NAMES))
    known = fixture.state.placed(pod_name)
    before = known.pod if known is not None else None
    match data.draw(st.sampled_from(["node", "place", "label", "take", "remove"])):
        case "node":
            old = fixture.state.node(name)
            fixture.set_node(new := make_node(name, **data.draw(node_labels)))
            kinds_of_event = node_changes(old, new) if old else {EventKind.NODE_ADD}
            return [ClusterEvent(kind, old, new) for kind in kinds_of_event]
        case "place" if known is None:
            return [ClusterEvent(EventKind.POD_ADD, None, fixture.place(renamed(data.draw(kinds), pod_name), name))]
        case "label" if known is not None:
            fixture.label(pod_name, data.draw(pod_labels))
            return [ClusterEvent(EventKind.POD_LABEL, before, known.pod)]
        case "take" if known is not None:
            fixture.take(pod_name)
            return [ClusterEvent(EventKind.POD_DELETE, before)]
        case "remove" if fixture.state.has_node(name):
            gone = fixture.state.node(name)
            fixture.remove_node(name)
            return [ClusterEvent(EventKind.NODE_DELETE, gone)]
    return []


@settings(max_examples=examples(150))
@given(st.data())
def test_no_event_after_which_a_node_passes_is_missed(data: st.DataObject) -> None:
    fixture = ClusterFixture()
    for name in NODE_NAMES[:2]:
        fixture.set_node(make_node(name, **data.draw(node_labels)))
    kinds = st.sampled_from(
        [data.draw(strict_pods("kind0")), data.draw(strict_pods("kind1")), data.draw(pods("kind2"))]
    )
    for _ in range(data.draw(st.integers(0, 5))):
        step(fixture, data.draw, kinds)
    pod = renamed(data.draw(kinds), "incoming")
    passed = {
        name for name, node in fixture.picture.nodes.items() if not reference.filter_result(pod, node, fixture.picture)
    }
    events = event_of(fixture, data, kinds)
    passes = {
        name for name, node in fixture.picture.nodes.items() if not reference.filter_result(pod, node, fixture.picture)
    }
    if passes - passed:
        info = fixture.info(pod)
        assert any(
            event.kind in fixture.plugin.events_to_register() and fixture.plugin.queueing_hint(info, event)
            for event in events
        )
