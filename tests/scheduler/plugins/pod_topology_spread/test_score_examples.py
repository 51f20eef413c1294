"""The situations of upstream's own scoring tests, with the scores that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeSpec, Taint
from koordinator.api.pod import Pod, PodSpec, TopologySpreadConstraint
from tests.scheduler.plugins.pod_topology_spread import constraints
from tests.scheduler.plugins.pod_topology_spread.constraints import has
from tests.scheduler.plugins.pod_topology_spread.fixtures import ClusterFixture
from tests.scheduler.plugins.pod_topology_spread.reference import HOSTNAME

spread = partial(constraints.spread, action="ScheduleAnyway")


@dataclass(frozen=True)
class Example:
    """``pods``: node -> the labels of each pod on it, in words; the zone of a and b is z1, of other nodes z2."""

    name: str
    constraints: Sequence[TopologySpreadConstraint]
    pods: dict[str, str]
    scores: dict[str, int]
    others: str = ""
    """Nodes that are not feasible."""
    own: str = "foo"
    lacking: dict[str, Sequence[str]] = field(default_factory=dict)
    service: dict[str, str] | None = None
    marked: str | None = None
    tainted: str = ""


UNEQUAL = {"a": "foo foo", "b": "foo", "d": "foo foo foo"}
DESCENDING = {"a": "foo foo foo foo", "b": "foo foo foo", "c": "foo foo", "d": "foo"}
THREE_OF_FOUR = {"a": "foo foo foo foo", "b": "foo foo", "x": "foo", "y": "foo foo foo"}
TWO_ONE_ONE = {"a": "foo foo", "b": "foo", "c": "foo"}

EXAMPLES = [
    Example("no pods", [spread(HOSTNAME)], {}, {"a": 100, "b": 100}),
    Example("one candidate", [spread(HOSTNAME)], {"a": "foo foo", "b": "foo"}, {"a": 100}, others="b"),
    Example("as many everywhere", [spread(HOSTNAME)], {"a": "foo", "b": "foo"}, {"a": 100, "b": 100}),
    Example("2/1/0/3", [spread(HOSTNAME)], UNEQUAL, {"a": 20, "b": 60, "c": 100, "d": 0}),
    Example("no selector", [spread(HOSTNAME, selector=None)], UNEQUAL, {"a": 100, "b": 100, "c": 100, "d": 100}),
    Example("2/1/0/3, skew 2", [spread(HOSTNAME, 2)], UNEQUAL, {"a": 33, "b": 66, "c": 100, "d": 16}),
    Example("4/3/2/1, skew 3", [spread(HOSTNAME, 3)], DESCENDING, {"a": 44, "b": 66, "c": 77, "d": 100}),
    Example(
        "the system's defaults where there are no zones",
        [],
        DESCENDING,
        {"a": 44, "b": 66, "c": 77, "d": 100},
        service={"foo": ""},
        lacking=dict.fromkeys("abcd", ("zone", "topology.kubernetes.io/zone")),
    ),
    Example("4/2/1/~3~", [spread(HOSTNAME)], THREE_OF_FOUR, {"a": 33, "b": 83, "x": 100}, others="y"),
    Example(
        "4/?2?/1/~3~",
        [spread(HOSTNAME)],
        THREE_OF_FOUR,
        {"a": 16, "b": 0, "x": 100},
        others="y",
        lacking={"b": (HOSTNAME,)},
    ),
    Example("zones, 4/2/1/~3~", [spread("zone")], THREE_OF_FOUR, {"a": 75, "b": 75, "x": 100}, others="y"),
    Example(
        "zones and nodes, 2/~1~/2/~4~",
        [spread("zone"), spread(HOSTNAME)],
        {"a": "foo foo", "b": "foo", "x": "foo foo", "y": "foo foo foo foo"},
        {"a": 100, "x": 63},
        others="by",
    ),
    Example(
        "two constraints on zones",
        [spread("zone"), spread("zone", selector=has("bar"))],
        {"a": "foo+bar foo", "b": "foo+bar", "y": "foo foo+bar foo"},
        {"a": 85, "x": 100},
        others="by",
        own="foo bar",
    ),
    Example(
        "different selectors",
        [spread("zone"), spread(HOSTNAME, selector=has("bar"))],
        {"a": "foo", "b": "foo+bar", "y": "foo bar"},
        {"a": 60, "b": 20, "x": 100, "y": 60},
        own="foo bar",
    ),
    Example(
        "different selectors, some nodes without pods",
        [spread("zone"), spread(HOSTNAME, selector=has("bar"))],
        {"b": "bar", "x": "foo", "y": "foo+bar"},
        {"a": 100, "b": 60, "x": 40, "y": 0},
        own="foo bar",
    ),
    Example(
        "different selectors, 3 of 4 candidates",
        [spread("zone"), spread(HOSTNAME, selector=has("bar"))],
        {"a": "foo", "b": "foo+bar", "y": "foo bar"},
        {"a": 50, "b": 25, "x": 100},
        others="y",
        own="foo bar",
    ),
    Example(
        "minDomains decide nothing",
        [spread("node", 2, domains=10)],
        {"a": "foo foo", "b": "foo foo", "c": "foo"},
        {"a": 75, "b": 75, "c": 100},
    ),
    Example("affinity is honored", [spread("node")], TWO_ONE_ONE, {"a": 0, "b": 33, "c": 100}, marked="ab"),
    Example(
        "affinity is ignored",
        [spread("node", affinity="Ignore")],
        TWO_ONE_ONE,
        {"a": 66, "b": 100, "c": 100},
        marked="ab",
    ),
    Example(
        "taints are honored", [spread("node", taints="Honor")], TWO_ONE_ONE, {"a": 0, "b": 33, "c": 100}, tainted="c"
    ),
    Example("taints are ignored", [spread("node")], TWO_ONE_ONE, {"a": 66, "b": 100, "c": 100}, tainted="c"),
    Example(
        "matchLabelKeys with empty selectors",
        [spread("zone", selector=has(), labels=["foo"]), spread(HOSTNAME, selector=has(), labels=["bar"])],
        {"a": "foo", "b": "foo+bar", "c": "foo bar"},
        {"a": 60, "b": 20, "c": 60, "d": 100},
        own="foo bar",
    ),
    Example(
        "matchLabelKeys with other selectors",
        [spread("zone"), spread(HOSTNAME, selector=has("bar"), labels=["baz"])],
        {"a": "foo", "b": "foo+bar+baz", "c": "foo bar bar+baz"},
        {"a": 60, "b": 20, "c": 60, "d": 100},
        own="foo bar baz",
    ),
]


def build(example: Example) -> ClusterFixture:
    fixture = ClusterFixture()
    for name in [*example.scores, *example.others]:
        zone = "z1" if name in "ab" else "z2"
        labels = {HOSTNAME: name, "node": name, "zone": zone, "topology.kubernetes.io/zone": zone}
        labels |= {"foo": ""} if name in (example.marked or "") else {}
        labels = {key: value for key, value in labels.items() if key not in example.lacking.get(name, ())}
        taints = [Taint(key="taken", effect="NoSchedule")] if name in example.tainted else []
        fixture.set_node(Node(metadata=ObjectMeta(name=name, labels=labels), spec=NodeSpec(taints=taints)))
        for number, keys in enumerate(example.pods.get(name, "").split()):
            own = dict.fromkeys(keys.split("+"), "")
            uid = f"{name}{number}"
            fixture.place(Pod(metadata=ObjectMeta(name=uid, uid=uid, namespace="default", labels=own)), name)
    if example.service is not None:
        fixture.set_service("s", example.service)
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
    assert build(example).scores_if_feasible(pod, list(example.scores)) == example.scores
