"""NodeResourcesFitPlus and ScarceResourceAvoidance against plain versions, and by examples."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.scheduler.configuration.koordinator_arguments import (
    NodeResourcesFitPlusArgs,
    ResourceStrategy,
    ScarceResourceAvoidanceArgs,
)
from tests.examples import examples
from tests.scheduler.plugins.clusters import EXTENDED, ClusterFixture, fixtures, pods
from tests.scheduler.plugins.reference import Machine
from tests.scheduler.plugins.reference_requests import allocatable_of, non_zero_of, requests_of, total
from tests.scheduler.plugins.test_against_reference import expected, scores

FIT_PLUS, SCARCE = "NodeResourcesFitPlus", "ScarceResourceAvoidance"
BATCH_CPU = "kubernetes.io/batch-cpu"
NAMES = ["cpu", "memory", EXTENDED, BATCH_CPU, "never.seen/anywhere"]
SETTINGS = settings(max_examples=examples(30))
strategies = st.dictionaries(
    st.sampled_from(NAMES),
    st.builds(ResourceStrategy, type=st.sampled_from(["LeastAllocated", "MostAllocated"]), weight=st.integers(0, 3)),
)


def plain_fit_plus(machine: Machine, pod: Pod, args: NodeResourcesFitPlusArgs) -> int:
    score = weights = 0
    for name, amount in requests_of(pod).items():
        if amount == 0 or name not in args.resources:
            continue
        strategy = args.resources[name]
        capacity = allocatable_of(machine.node).get(name, 0)
        used = requests_of(pod)[name] + total([requests_of(other) for other in machine.pods], name)
        if name in ("cpu", "memory"):
            used = non_zero_of(pod)[name] + sum(non_zero_of(other)[name] for other in machine.pods)
        share = 0
        if capacity and strategy.type == "MostAllocated":
            share = min(used, capacity) * 100 // capacity
        elif capacity and used <= capacity:
            share = (capacity - used) * 100 // capacity
        score += share * strategy.weight
        weights += strategy.weight
    return score // weights if weights else 100


def plain_scarce(machine: Machine, pod: Pod, args: ScarceResourceAvoidanceArgs) -> int:
    wanted = {name for name, amount in requests_of(pod).items() if amount}
    present = {name for name, amount in allocatable_of(machine.node).items() if amount and name != "pods"}
    unused = present - wanted
    scarce = unused & set(args.resources)
    return (len(unused) - len(scarce)) * 100 // len(unused) if scarce else 100


@SETTINGS
@given(data=st.data(), pod=pods("incoming"))
def test_fit_plus_agrees_with_the_plain_version(data: st.DataObject, pod: Pod) -> None:
    args = NodeResourcesFitPlusArgs(resources=data.draw(strategies))
    fixture = data.draw(fixtures({FIT_PLUS: args}))
    assert scores(fixture, FIT_PLUS, pod) == expected(fixture, lambda machine: plain_fit_plus(machine, pod, args))


@SETTINGS
@given(data=st.data(), pod=pods("incoming"))
def test_scarce_resources_agree_with_the_plain_version(data: st.DataObject, pod: Pod) -> None:
    args = ScarceResourceAvoidanceArgs(resources=data.draw(st.lists(st.sampled_from([*NAMES, "pods"]))))
    fixture = data.draw(fixtures({SCARCE: args}))
    assert scores(fixture, SCARCE, pod) == expected(fixture, lambda machine: plain_scarce(machine, pod, args))


def node(name: str, **allocatable: str) -> Node:
    amounts = {"pods": "10", **{key.replace("gpu", EXTENDED): value for key, value in allocatable.items()}}
    return convert({"metadata": {"name": name, "uid": name}, "status": {"allocatable": amounts}}, Node)


def pod(requests: dict[str, str], **spec: Any) -> Pod:
    containers = [{"name": "c", "resources": {"requests": requests}}]
    metadata = {"name": "p", "namespace": "default", "uid": "p"}
    return convert({"metadata": metadata, "spec": {"containers": containers, **spec}}, Pod)


def fit_plus(**strategies: tuple[str, int]) -> ClusterFixture:
    """Resource -> (strategy, weight); ``gpu`` is the extended one."""
    chosen = {
        name.replace("gpu", EXTENDED): ResourceStrategy(kind, weight) for name, (kind, weight) in strategies.items()
    }
    return ClusterFixture({FIT_PLUS: NodeResourcesFitPlusArgs(resources=chosen)})


def scarce(*names: str) -> ClusterFixture:
    return ClusterFixture({SCARCE: ScarceResourceAvoidanceArgs(resources=list(names))})


def test_a_pod_is_packed_by_one_resource_and_spread_by_another() -> None:
    fixture = fit_plus(gpu=("MostAllocated", 2), cpu=("LeastAllocated", 1))
    fixture.set_node(node("n", cpu="4", gpu="4"))
    # A quarter of the widgets is used, a quarter of the CPU: (2 * 25 + 75) / 3.
    assert scores(fixture, FIT_PLUS, pod({"cpu": "1", EXTENDED: "1"})) == {"n": 41}


def test_a_resource_that_the_node_lacks_counts_with_nothing() -> None:
    fixture = fit_plus(gpu=("MostAllocated", 1), cpu=("MostAllocated", 1))
    fixture.set_node(node("n", cpu="2"))
    assert scores(fixture, FIT_PLUS, pod({"cpu": "1", EXTENDED: "1"})) == {"n": 25}


def test_a_pod_that_requests_nothing_of_what_is_named_is_welcome_everywhere() -> None:
    fixture = fit_plus(gpu=("MostAllocated", 1))
    fixture.set_node(node("n", cpu="2"))
    assert scores(fixture, FIT_PLUS, pod({"cpu": "1"})) == {"n": 100}


def test_overhead_counts() -> None:
    fixture = fit_plus(cpu=("LeastAllocated", 1))
    fixture.set_node(node("n", cpu="4"))
    assert scores(fixture, FIT_PLUS, pod({"cpu": "1"}, overhead={"cpu": "1"})) == {"n": 50}


def test_pods_are_kept_off_what_they_do_not_use() -> None:
    fixture = scarce(EXTENDED)
    fixture.set_node(node("plain", cpu="4", memory="1Gi"))
    fixture.set_node(node("rich", cpu="4", memory="1Gi", gpu="1"))
    # Of memory and widgets, which it does not request, widgets are scarce.
    assert scores(fixture, SCARCE, pod({"cpu": "1"})) == {"plain": 100, "rich": 50}


def test_a_pod_that_uses_what_is_scarce_may_go_there() -> None:
    fixture = scarce(EXTENDED)
    fixture.set_node(node("rich", cpu="4", memory="1Gi", gpu="1"))
    assert scores(fixture, SCARCE, pod({EXTENDED: "1"})) == {"rich": 100}


def test_a_resource_that_comes_to_the_cluster_later_counts() -> None:
    fixture = scarce(EXTENDED)
    fixture.set_node(node("plain", cpu="4"))
    incoming = pod({"cpu": "1"})
    assert scores(fixture, SCARCE, incoming) == {"plain": 100}
    fixture.set_node(node("rich", cpu="4", gpu="1"))
    assert scores(fixture, SCARCE, incoming) == {"plain": 100, "rich": 0}


def test_pods_that_request_the_same_resources_are_of_one_class() -> None:
    fixture = scarce(EXTENDED)
    keys = {
        fixture.plugins[SCARCE].class_key(fixture.info(pod({"cpu": amount, "memory": "1Gi"})))
        for amount in ("1", "2", "3")
    }
    assert len(keys) == 1
