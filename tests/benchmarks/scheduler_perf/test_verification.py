from __future__ import annotations

from typing import Any

import pytest

from benchmarks.scheduler_perf.pod_tracker import Binding, PodTracker
from benchmarks.scheduler_perf.verification import faults
from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.api.pod import Pod

ZONE = "topology.kubernetes.io/zone"
NODES = [("n1", "z1"), ("n2", "z1"), ("n3", "z2")]


def node(name: str, zone: str) -> Node:
    labels = {"kubernetes.io/hostname": name, ZONE: zone}
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "3"}
    document = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}}
    return convert(document, Node)


def pod(name: str, on: str = "", cpu: str = "1", **spec: Any) -> Pod:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "ns", "labels": {"app": "a"}}
    return convert({"metadata": metadata, "spec": {"nodeName": on, "containers": [container], **spec}}, Pod)


def found(*pods: Pod, must: tuple[str, ...] = (), bound: dict[str, str] | None = None, deleted: str = "") -> list[str]:
    tracker = PodTracker()
    targets = {one.metadata.name: one.spec.node_name for one in pods if one.spec.node_name}
    for name, target in {**targets, **(bound or {})}.items():
        tracker.bindings["ns", name] = Binding(1.0, target, {})
    if deleted:
        tracker.deleted.add(("ns", deleted))
    return faults([node(*one) for one in NODES], pods, tracker, [("ns", name) for name in must])


def spread(name: str, on: str) -> Pod:
    selector = {"matchLabels": {"app": "a"}}
    rule = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return pod(name, on, topologySpreadConstraints=[rule])


def apart(name: str, on: str, **term: Any) -> Pod:
    rule = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}, **term}
    return pod(name, on, affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}})


def in_zone(on: str, operator: str, *values: str) -> Pod:
    term = {"matchExpressions": [{"key": ZONE, "operator": operator, "values": list(values)}]}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return pod("p", on, affinity={"nodeAffinity": rule})


def test_a_full_node_is_right() -> None:
    assert found(pod("a", "n1", "2"), pod("b", "n1", "2"), must=("a", "b")) == []


@pytest.mark.parametrize("pods", [[pod("a", "n1", "5")], [pod(str(number), "n1", "1m") for number in range(4)]])
def test_more_than_there_is_is_wrong(pods: list[Pod]) -> None:
    assert len(found(*pods)) == 1


def test_a_pod_that_must_be_bound_and_is_not() -> None:
    assert "ns/a" in found(pod("a"), must=("a",))[0]


def test_a_pod_that_was_bound_and_then_deleted_is_right() -> None:
    assert found(must=("a",), bound={"a": "n1"}, deleted="a") == []


def test_a_pod_that_need_not_be_bound_may_wait() -> None:
    assert found(pod("a", cpu="9")) == []


def test_a_pod_on_two_nodes() -> None:
    assert "two nodes" in found(pod("a", "n1"), bound={"a": "n2"})[0]


@pytest.mark.parametrize(
    ("placed", "right"),
    [
        (in_zone("n1", "In", "z1"), True),
        (in_zone("n3", "In", "z1"), False),
        (in_zone("n3", "NotIn", "z1"), True),
        (in_zone("n1", "NotIn", "z1"), False),
        (in_zone("n1", "Exists"), True),
        (in_zone("n1", "DoesNotExist"), False),
        (pod("p", "n1", nodeSelector={ZONE: "z1"}), True),
        (pod("p", "n1", nodeSelector={ZONE: "z2"}), False),
    ],
)
def test_node_affinity(placed: Pod, right: bool) -> None:
    assert (found(placed) == []) is right


def test_anti_affinity() -> None:
    assert found(apart("a", "n1"), apart("b", "n2")) == []
    assert len(found(apart("a", "n1"), apart("b", "n1"))) == 2


def test_anti_affinity_binds_those_that_do_not_request_it_too() -> None:
    assert len(found(apart("a", "n1"), pod("b", "n1"))) == 1


def test_anti_affinity_to_other_namespaces() -> None:
    assert found(apart("a", "n1", namespaces=["other"]), pod("b", "n1")) == []


def test_spread() -> None:
    assert found(spread("a", "n1"), spread("b", "n3")) == []
    assert "skew above 1" in found(spread("a", "n1"), spread("b", "n2"))[0]


def test_spread_is_not_evaluated_where_others_count() -> None:
    assert found(spread("a", "n1"), pod("b", "n2")) == []


def test_spread_is_not_evaluated_after_deletions() -> None:
    assert found(spread("a", "n1"), spread("b", "n2"), deleted="c") == []
