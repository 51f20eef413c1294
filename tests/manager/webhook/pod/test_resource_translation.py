"""CPU and memory in the names of a pod's priority class."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.document import Document, copied
from koordinator.api.quantity import Quantity
from koordinator.manager.webhook.pod.resource_specs import translate_resources

NATIVE = {"cpu": "1500m", "memory": "2Gi"}
QUANTITIES = st.sampled_from(["0", "1", "500m", "1500m", "100u", "1", "2k", "3456Mi", "1Gi", "1e3", "0.5"])
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/fpga"]), QUANTITIES, max_size=3)
CONTAINERS = st.lists(st.fixed_dictionaries({"resources": st.fixed_dictionaries({"requests": AMOUNTS})}), max_size=3)


def pod(resources: Document, labels: Document | None = None, /, **spec: Any) -> Document:
    return {
        "metadata": {"name": "a", "labels": labels or {}},
        "spec": {"containers": [{"name": "main", "resources": resources}], **spec},
    }


def translated(document: Document) -> Document:
    changed = copied(document)
    assert translate_resources(changed) == []
    return dict(changed["spec"]["containers"][0]["resources"])


@pytest.mark.parametrize(
    ("labels", "priority", "prefix"),
    [
        ({}, 5000, "batch"),
        ({}, 5999, "batch"),
        ({}, 7500, "mid"),
        ({"koordinator.sh/priority-class": "koord-mid"}, 5000, "mid"),
        ({"koordinator.sh/priority-class": "koord-batch"}, None, "batch"),
        ({"koordinator.sh/qosClass": "BE"}, None, "batch"),
    ],
)
def test_batch_and_mid(labels: Document, priority: int | None, prefix: str) -> None:
    document = pod({"requests": NATIVE, "limits": NATIVE}, labels, priority=priority)
    extended = {f"kubernetes.io/{prefix}-cpu": "1500", f"kubernetes.io/{prefix}-memory": "2Gi"}
    assert translated(document) == {"requests": extended, "limits": extended}


@pytest.mark.parametrize(
    ("labels", "priority"),
    [
        ({}, 9500),
        ({}, 3500),
        ({}, None),
        ({}, 6666),
        ({"koordinator.sh/priority-class": "koord-prod"}, 5000),
        ({"koordinator.sh/qosClass": "LS"}, None),
    ],
)
def test_other_classes_keep_native_resources(labels: Document, priority: int | None) -> None:
    resources = {"requests": NATIVE, "limits": NATIVE}
    assert translated(pod(resources, labels, priority=priority)) == resources


def test_free_pods_get_resources_of_their_own_with_the_gate_alone() -> None:
    document = pod({"requests": dict(NATIVE)}, priority=3500)
    assert translate_resources(document, free=True) == []
    assert document["spec"]["containers"][0]["resources"] == {
        "requests": {"kubernetes.io/free-cpu": "1500", "kubernetes.io/free-memory": "2Gi"}
    }


def test_a_pod_that_requests_nothing_is_best_effort_and_so_batch() -> None:
    document = pod({"limits": {"example.com/fpga": "1"}})
    assert translated(document) == {"limits": {"example.com/fpga": "1"}}


def test_a_limit_that_is_batch_already_is_requested() -> None:
    limits = {"kubernetes.io/batch-cpu": "500"}
    assert translated(pod({"limits": limits}, priority=5000)) == {"limits": limits, "requests": limits}


def test_a_fraction_of_a_thousandth_is_rounded_up() -> None:
    found = translated(pod({"requests": {"cpu": "100u"}}, priority=5000))
    assert found == {"requests": {"kubernetes.io/batch-cpu": "1"}}


def test_amounts_of_the_whole_pod_are_reported() -> None:
    document = pod({}, priority=5000, resources={"requests": NATIVE})
    assert translate_resources(document) == [
        "spec.resources: cpu and memory of the pod as a whole stay native, since only containers can have "
        "kubernetes.io/batch-cpu and kubernetes.io/batch-memory: write them into spec.containers[*].resources"
    ]
    assert document["spec"]["resources"] == {"requests": NATIVE}


@given(CONTAINERS, CONTAINERS)
def test_nothing_is_lost_and_nothing_is_added(init: list[Document], containers: list[Document]) -> None:
    document: Document = {"spec": {"priority": 5500, "initContainers": init, "containers": containers}}
    changed = copied(document)
    translate_resources(changed)
    for before, after in zip([*init, *containers], _containers(changed), strict=True):
        native, extended = before["resources"]["requests"], after["resources"]["requests"]
        assert len(native) == len(extended)
        assert Quantity.parse(extended.get("kubernetes.io/batch-cpu", "0")).value == _milli(native)
        assert extended.get("kubernetes.io/batch-memory") == native.get("memory")
        assert extended.get("example.com/fpga") == native.get("example.com/fpga")


@given(CONTAINERS)
def test_a_second_time_changes_nothing(containers: list[Document]) -> None:
    document: Document = {"spec": {"priority": 5500, "containers": containers}}
    translate_resources(document)
    again = copied(document)
    translate_resources(again)
    assert again == document


def _containers(document: Document) -> list[Document]:
    return [*document["spec"]["initContainers"], *document["spec"]["containers"]]


def _milli(amounts: Document) -> int:
    return Quantity.parse(amounts.get("cpu", "0")).milli
