"""How nodes and pods look to scheduling."""

from __future__ import annotations

import msgspec
import pytest

from koordinator.api.quantity import Quantity
from koordinator.model.transformers import node_as_seen, pod_steps
from koordinator.scheduler.engine.pod_info import pod_as_seen
from tests.scheduler.fakes import make_node, make_pod

RESERVATION = "node.koordinator.sh/reservation"
SCHEDULER_NAME = "scheduling.koordinator.sh/scheduler-name"


def allocatable_with(annotation: str, **resources: str) -> dict[str, str]:
    """What is offered of 4 CPUs, 8Gi (or ``resources``) under this reservation."""
    node = make_node("a")
    metadata = msgspec.structs.replace(node.metadata, annotations={RESERVATION: annotation})
    amounts = {**node.status.allocatable, **{k: Quantity.parse(v) for k, v in resources.items()}}
    status = msgspec.structs.replace(node.status, allocatable=amounts)
    seen = node_as_seen(msgspec.structs.replace(node, metadata=metadata, status=status))
    return {name: str(amount) for name, amount in seen.status.allocatable.items() if name != "pods"}


@pytest.mark.parametrize(
    ("annotation", "cpu", "memory"),
    [
        ('{"resources":{"cpu":"1500m","memory":"1Gi"}}', "2500m", "7Gi"),
        ('{"resources":{"cpu":"9"},"applyPolicy":"Default"}', "0", "8Gi"),
        ('{"reservedCPUs":"0-1,3"}', "1", "8Gi"),
        ('{"resources":{"cpu":"500m"},"reservedCPUs":"0"}', "3", "8Gi"),
        ('{"resources":{"cpu":"1"},"applyPolicy":"ReservedCPUsOnly"}', "4", "8Gi"),
        ('{"reservedCPUs":"0-"}', "4", "8Gi"),
        # More than any machine has: nobody counts them one by one.
        ('{"reservedCPUs":"0-99999999999"}', "4", "8Gi"),
        ("not json", "4", "8Gi"),
    ],
)
def test_a_reservation_trims_what_is_offered(annotation: str, cpu: str, memory: str) -> None:
    assert allocatable_with(annotation) == {"cpu": cpu, "memory": memory}


def test_a_reservation_leaves_batch_resources_alone() -> None:
    offered = allocatable_with('{"resources":{"kubernetes.io/batch-cpu":"1k"}}', **{"kubernetes.io/batch-cpu": "3k"})
    assert offered["kubernetes.io/batch-cpu"] == "3k"


def test_old_resource_names_of_a_node_are_read_as_the_new_ones() -> None:
    assert "kubernetes.io/batch-cpu" in allocatable_with("{}", **{"koordinator.sh/batch-cpu": "5"})


def test_a_node_without_anything_special_is_the_same_object() -> None:
    node = make_node("a")
    assert node_as_seen(node) is node


def test_the_label_names_the_scheduler_and_the_old_name_is_kept() -> None:
    pod = pod_as_seen(make_pod("p", scheduler="default-scheduler", labels={SCHEDULER_NAME: "koord-scheduler"}))
    assert pod.spec.scheduler_name == "koord-scheduler"
    key = "internal.scheduling.koordinator.sh/original-scheduler-name"
    assert pod.metadata.annotations[key] == "default-scheduler"


def test_an_empty_label_counts_too() -> None:
    assert pod_as_seen(make_pod("p", labels={SCHEDULER_NAME: ""})).spec.scheduler_name == ""


def test_old_resource_names_of_a_pod_are_read_as_the_new_ones() -> None:
    pod = make_pod("p")
    (container,) = pod.spec.containers
    requests = {"koordinator.sh/batch-cpu": Quantity.parse("500")}
    resources = msgspec.structs.replace(container.resources, requests=requests)
    spec = msgspec.structs.replace(pod.spec, containers=[msgspec.structs.replace(container, resources=resources)])
    seen = pod_as_seen(msgspec.structs.replace(pod, spec=spec))
    assert list(seen.spec.containers[0].resources.requests) == ["kubernetes.io/batch-cpu"]


def test_a_pod_without_anything_special_is_the_same_object() -> None:
    pod = make_pod("p")
    assert pod_as_seen(pod) is pod


def priority_of(gates: set[str], priority: int | None, **labels: str) -> int | None:
    pod = make_pod("p", labels={f"koordinator.sh/{key}": value for key, value in labels.items()})
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority))
    return pod_as_seen(pod, pod_steps(gates)).spec.priority


@pytest.mark.parametrize(
    ("priority", "labels", "seen"),
    [
        (None, {"priority-class": "koord-mid"}, 7500),
        (0, {"priority-class": "koord-batch"}, 5500),
        (0, {"qosClass": "BE"}, 5500),
        (7, {"priority-class": "koord-prod"}, 7),
        (None, {"qosClass": "LSR"}, 9500),
    ],
)
def test_with_its_gate_a_pod_without_priority_has_that_of_its_class(
    priority: int | None, labels: dict[str, str], seen: int
) -> None:
    assert priority_of({"PriorityTransformer"}, priority, **labels) == seen
    assert priority_of(set(), priority, **labels) == priority


@pytest.mark.parametrize(
    ("label", "policy", "seen"),
    [
        ("Never", None, "Never"),
        ("PreemptLowerPriority", "Never", "PreemptLowerPriority"),
        ("Sometimes", "PreemptLowerPriority", "Never"),
        ("", "PreemptLowerPriority", "Never"),
    ],
)
def test_with_its_gate_a_label_says_whether_a_pod_may_preempt(label: str, policy: str | None, seen: str) -> None:
    labels = {"scheduling.koordinator.sh/preemption-policy": label} if label else {}
    pod = make_pod("p", labels=labels, preemption_policy=policy)
    assert pod_as_seen(pod, pod_steps({"PreemptionPolicyTransformer"})).spec.preemption_policy == seen
    assert pod_as_seen(pod) is pod


def test_with_its_gate_an_annotation_replaces_resources() -> None:
    pod = make_pod("p", cpu="1500m")
    annotations = {"pod.koordinator.sh/replace-resources": "cpu:kubernetes.io/batch-cpu,memory:"}
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))
    pod.spec.containers[0].resources.limits["cpu"] = Quantity.parse("2")
    seen = pod_as_seen(pod, pod_steps({"ReplaceResourcesTransformer"})).spec.containers[0].resources
    assert {name: str(amount) for name, amount in seen.requests.items()} == {"kubernetes.io/batch-cpu": "1500"}
    assert {name: str(amount) for name, amount in seen.limits.items()} == {"kubernetes.io/batch-cpu": "2k"}
    assert pod_as_seen(pod) is pod
