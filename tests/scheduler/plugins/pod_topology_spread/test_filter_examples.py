"""The situations of upstream's own filter tests, with the results that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeSpec, Taint
from koordinator.api.pod import Pod, PodSpec, TopologySpreadConstraint
from tests.scheduler.plugins.pod_topology_spread.constraints import has, spread
from tests.scheduler.plugins.pod_topology_spread.fixtures import ClusterFixture
from tests.scheduler.plugins.pod_topology_spread.reference import MISSING, UNEVEN

FOUR = {"a": "zone1", "b": "zone1", "x": "zone2", "y": "zone2"}
"""Node -> zone. Each has its name in the label ``node`` as well."""
ALL = "abxy"


@dataclass(frozen=True)
class Example:
    """``pods``: node -> the labels of each pod on it, in words. ``fits``: the nodes that take the pod."""

    name: str
    constraints: Sequence[TopologySpreadConstraint]
    pods: dict[str, str]
    fits: str
    own: str = "foo"
    lacking: dict[str, str] = field(default_factory=dict)
    """Node -> a label key that it lacks."""
    marked: str | None = None
    """The nodes with the label ``foo``, which the pod selects by then."""
    tainted: str = ""
    missing: str = ""
    """The nodes that are rejected for a missing label."""


EXAMPLES = [
    Example("no pods", [spread("zone")], {}, "abxy"),
    Example("no pods, and the pod does not match itself", [spread("zone", selector=has("bar"))], {}, "abxy"),
    Example("no selector matches nothing", [spread("zone", selector=None)], {"x": "foo", "y": "foo"}, "abxy"),
    Example("an empty selector counts nothing", [spread("zone", selector=has())], {"x": "foo", "y": "foo"}, "abxy"),
    Example("zones 3/3", [spread("zone")], {"a": "foo foo", "b": "foo", "y": "foo foo foo"}, "abxy"),
    Example(
        "a node without the key neither counts nor fits",
        [spread("zone")],
        {"a": "foo", "b": "foo", "x": "foo", "y": "foo"},
        "a",
        lacking={"b": "zone"},
        missing="b",
    ),
    Example("nobody has the key", [spread("rack")], {}, "", missing="abxy"),
    Example("nodes 2/1/0/3", [spread("node")], {"a": "foo foo", "b": "foo", "y": "foo foo foo"}, "x"),
    Example("nodes 2/1/0/3, skew 2", [spread("node", 2)], {"a": "foo foo", "b": "foo", "y": "foo foo foo"}, "bx"),
    Example(
        "nodes 2/1/0/3, and the pod does not match itself",
        [spread("node")],
        {"a": "foo foo", "b": "foo", "y": "foo foo foo"},
        "bx",
        own="bar",
    ),
    Example("pods being deleted do not count", [spread("node")], {"a": "foo-deleted", "b": "foo", "x": "foo"}, "ay"),
    Example("pods elsewhere do not count", [spread("zone")], {"a": "foo-other", "x": "foo"}, "ab"),
    Example(
        "fewer domains than minDomains",
        [spread("node", 2, domains=5)],
        {"a": "foo foo", "b": "foo foo", "x": "foo", "y": "foo"},
        "xy",
    ),
    Example(
        "no fewer domains than minDomains",
        [spread("node", 2, domains=4)],
        {"a": "foo foo", "b": "foo foo", "x": "foo", "y": "foo"},
        "abxy",
    ),
    Example("zones 2/1, minDomains 3", [spread("zone", 2, domains=3)], {"a": "foo", "b": "foo", "y": "foo"}, "xy"),
    Example("zones 2/1, minDomains 1", [spread("zone", 2, domains=1)], {"a": "foo", "b": "foo", "y": "foo"}, "abxy"),
    Example(
        "affinity is honored unless said otherwise",
        [spread("node")],
        {"a": "foo", "b": "foo", "y": "foo"},
        "xy",
        marked="abx",
    ),
    Example(
        "affinity is ignored",
        [spread("node", affinity="Ignore")],
        {"a": "foo", "b": "foo", "y": "foo"},
        "x",
        marked="abx",
    ),
    Example(
        "taints are ignored unless said otherwise",
        [spread("node")],
        {"a": "foo", "b": "foo", "y": "foo"},
        "x",
        tainted="y",
    ),
    Example(
        "taints are honored",
        [spread("node", taints="Honor")],
        {"a": "foo", "b": "foo", "y": "foo"},
        "xy",
        tainted="y",
    ),
    Example(
        "zones 3/3 and nodes 2/1/0/3",
        [spread("zone"), spread("node")],
        {"a": "foo foo", "b": "foo", "y": "foo foo foo"},
        "x",
    ),
    Example(
        "zones 3/4 and nodes 2/1/0/4",
        [spread("zone"), spread("node")],
        {"a": "foo foo", "b": "foo", "y": "foo foo foo foo"},
        "",
    ),
    Example(
        "different selectors, 1/0 and 1/0/0/1",
        [spread("zone"), spread("node", selector=has("bar"))],
        {"a": "foo", "y": "bar"},
        "x",
        own="foo bar",
    ),
    Example(
        "different selectors, 1/0 and 0/0/1/1",
        [spread("zone"), spread("node", selector=has("bar"))],
        {"a": "foo", "x": "bar", "y": "bar"},
        "",
        own="foo bar",
    ),
    Example(
        "different selectors, 2/3 and 1/0/0/1",
        [spread("zone"), spread("node", selector=has("bar"))],
        {"a": "foo foo+bar", "y": "foo foo+bar foo"},
        "b",
        own="foo bar",
    ),
    Example(
        "different selectors, and the pod does not match itself in its zone",
        [spread("zone"), spread("node", selector=has("bar"))],
        {"a": "foo", "x": "bar", "y": "bar"},
        "ab",
        own="bar",
    ),
    Example(
        "two constraints, and a node without one key",
        [spread("zone"), spread("node")],
        {"a": "foo", "y": "foo"},
        "b",
        lacking={"x": "node"},
        missing="x",
    ),
    Example(
        "zones by honored affinity, nodes by ignored",
        [spread("zone"), spread("node", affinity="Ignore")],
        {"a": "foo", "b": "foo", "y": "foo"},
        "x",
        marked="abx",
    ),
    Example(
        "zones by honored taints, nodes by ignored",
        [spread("zone", taints="Honor"), spread("node")],
        {"a": "foo", "b": "foo", "y": "foo"},
        "x",
        tainted="y",
    ),
    Example(
        "two constraints on zones, 2/1 and 3/3",
        [spread("zone", selector=has("bar")), spread("zone")],
        {"a": "foo+bar foo", "b": "foo+bar", "y": "foo foo+bar foo"},
        "xy",
        own="foo bar",
    ),
    Example(
        "two constraints on zones, 2/1 and 3/4",
        [spread("zone", selector=has("bar")), spread("zone")],
        {"a": "foo+bar foo", "b": "foo+bar", "y": "foo foo+bar foo foo"},
        "",
        own="foo bar",
    ),
    Example(
        "matchLabelKeys narrow a selector",
        [spread("zone", labels=["bar"])],
        {"a": "foo foo", "b": "foo", "y": "foo+bar"},
        "ab",
        own="foo bar",
    ),
    Example(
        "matchLabelKeys that the pod lacks do not count",
        [spread("zone", labels=["bar"])],
        {"a": "foo foo", "b": "foo", "y": "foo+bar"},
        "xy",
    ),
    Example(
        "matchLabelKeys make something of an empty selector",
        [spread("zone", selector=has(), labels=["bar"])],
        {"a": "foo", "y": "bar"},
        "ab",
        own="foo bar",
    ),
    Example(
        "matchLabelKeys make nothing of no selector",
        [spread("zone", selector=None, labels=["foo"])],
        {"x": "foo", "y": "foo"},
        "abxy",
    ),
]


def build(example: Example) -> ClusterFixture:
    fixture = ClusterFixture()
    for name, zone in FOUR.items():
        labels = {"zone": zone, "node": name} | ({"foo": ""} if name in (example.marked or "") else {})
        labels.pop(example.lacking.get(name, ""), None)
        taints = [Taint(key="taken", effect="NoSchedule")] if name in example.tainted else []
        fixture.set_node(Node(metadata=ObjectMeta(name=name, labels=labels), spec=NodeSpec(taints=taints)))
        for number, words in enumerate(example.pods.get(name, "").split()):
            keys, _, mark = words.partition("-")
            metadata = ObjectMeta(
                name=f"{name}{number}",
                uid=f"{name}{number}",
                namespace="other" if mark == "other" else "default",
                labels=dict.fromkeys(keys.split("+"), ""),
                deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC) if mark == "deleted" else None,
            )
            fixture.place(Pod(metadata=metadata), name)
    return fixture


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.name for example in EXAMPLES])
def test_example(example: Example) -> None:
    pod = Pod(
        metadata=ObjectMeta(name="p", namespace="default", uid="p", labels=dict.fromkeys(example.own.split(), "")),
        spec=PodSpec(
            topology_spread_constraints=list(example.constraints),
            node_selector={"foo": ""} if example.marked else {},
        ),
    )
    result = build(example).evaluate_afresh(pod)
    expected = {name: [MISSING] if name in example.missing else [UNEVEN] for name in ALL if name not in example.fits}
    assert {name: reasons for name, reasons in result.reasons.items() if reasons} == expected
    assert result.unresolvable == set(example.missing)
