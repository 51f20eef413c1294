"""What a soak calls given out twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.soak_checks import Bookings
from koordinator.api.annotations import DEVICE_ALLOCATED, RESERVATION_ALLOCATED, RESOURCE_STATUS
from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.api.pod import Pod

NODE = convert({"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "3"}}}, Node)

THREE_QUARTERS = {"minor": 1, "resources": {"koordinator.sh/gpu-core": "75"}}


def pod(name: str, on: str = "a", cpu: str = "1", phase: str = "Running", **annotations: Any) -> Pod:
    texts = {key.replace("__", "/"): json.dumps(value) for key, value in annotations.items()}
    return convert(
        {
            "metadata": {"name": name, "namespace": "soak", "uid": name, "annotations": texts},
            "spec": {"nodeName": on, "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": phase},
        },
        Pod,
    )


def annotated(name: str, key: str, value: Any) -> Pod:
    return pod(name, **{key.replace("/", "__"): value})


def bookings(*pods: Pod) -> Bookings:
    made = Bookings({"a": NODE}.get)
    for each in pods:
        made.seen(each)
    return made


def test_pods_that_fit_are_no_fault() -> None:
    found = bookings(pod("p"), pod("q", cpu="2"), pod("p"))
    assert (found.bound, found.faults) == (2, {})


def test_a_pod_with_another_node() -> None:
    found = bookings(pod("p"), pod("p", on="b"))
    assert list(found.faults) == ["soak/p was bound to a and then to b"]


@pytest.mark.parametrize(
    ("pods", "resource"),
    [([pod("p", cpu="3"), pod("q", cpu="2")], "cpu"), ([pod(name, cpu="1m") for name in "pqrs"], "pods")],
)
def test_a_node_that_is_too_full(pods: list[Pod], resource: str) -> None:
    assert list(bookings(*pods).faults) == [f"a: pods request more {resource} than there is"]


def test_what_pods_that_have_ended_or_gone_had_is_free() -> None:
    found = bookings(pod("p", cpu="3"), pod("p", cpu="3", phase="Succeeded"), pod("q", cpu="3"))
    found.gone(pod("q", cpu="3"))
    found.seen(pod("r", cpu="3"))
    assert not found.faults


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        (RESOURCE_STATUS, {"cpuset": "2"}, "CPU 2 is given out 2 times"),
        (DEVICE_ALLOCATED, {"gpu": [THREE_QUARTERS]}, "GPU 1 is given out 1.5 times"),
        (RESERVATION_ALLOCATED, {"name": "r"}, "Reservation r is given out 2 times"),
    ],
)  # fmt: skip
def test_what_only_one_may_have(key: str, value: Any, what: str) -> None:
    found = bookings(annotated("p", key, value))
    assert not found.faults
    found.seen(annotated("q", key, value))
    assert list(found.faults) == [f"a: {what}"]
