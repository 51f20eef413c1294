"""QoS and priority classes of pods."""

from __future__ import annotations

import pytest

from koordinator.api import labels
from koordinator.api.codec import convert
from koordinator.api.field_error import InvalidFieldError
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod, PodSpec, PodStatus
from koordinator.api.priority import (
    PriorityClass,
    priority_class_raw,
    priority_class_with_default,
    priority_value_with_default,
    sub_priority,
)
from koordinator.api.qos import QoSClass, compute_kubernetes_qos, qos_class_raw, qos_class_with_default

_WHOLE = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


def _pod(
    *, qos: str | None = None, priority_class: str | None = None, priority: int | None = None, kubernetes: str = ""
) -> Pod:
    named = {labels.QOS_CLASS: qos, labels.PRIORITY_CLASS: priority_class}
    return Pod(
        metadata=ObjectMeta(labels={key: value for key, value in named.items() if value is not None}),
        spec=PodSpec(priority=priority),
        status=PodStatus(qos_class=kubernetes),
    )


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("LSE", QoSClass.LSE),
        ("LSR", QoSClass.LSR),
        ("LS", QoSClass.LS),
        ("BE", QoSClass.BE),
        ("SYSTEM", QoSClass.SYSTEM),
        ("be", QoSClass.NONE),
        ("", QoSClass.NONE),
        (None, QoSClass.NONE),
    ],
)
def test_raw_qos_is_what_the_label_names(label: str | None, expected: QoSClass) -> None:
    assert qos_class_raw(_pod(qos=label)) is expected


@pytest.mark.parametrize(
    ("label", "kubernetes", "expected"),
    [
        ("LSE", "BestEffort", QoSClass.LSE),
        ("odd", "Guaranteed", QoSClass.LSR),
        (None, "Guaranteed", QoSClass.LSR),
        (None, "Burstable", QoSClass.LS),
        (None, "BestEffort", QoSClass.BE),
        (None, "", QoSClass.BE),
    ],
)
def test_qos_defaults_to_what_the_kubernetes_class_stands_for(
    label: str | None, kubernetes: str, expected: QoSClass
) -> None:
    assert qos_class_with_default(_pod(qos=label, kubernetes=kubernetes)) is expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [{"resources": _WHOLE}]}, "Guaranteed"),
        ({"containers": [{"resources": _WHOLE}, {}]}, "Burstable"),
        ({"containers": [{"resources": _WHOLE}], "initContainers": [{}]}, "Burstable"),
        ({"containers": [{"resources": {**_WHOLE, "requests": {"cpu": "1"}}}]}, "Burstable"),
        ({"containers": [{"resources": {"limits": {"cpu": "1"}}}]}, "Burstable"),
        ({"containers": [{"resources": {"requests": {"cpu": "0"}}}]}, "BestEffort"),
        ({"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]}, "BestEffort"),
        ({"containers": [{}], "resources": _WHOLE}, "Guaranteed"),
    ],
)
def test_the_kubernetes_class_follows_from_cpu_and_memory(spec: dict[str, object], expected: str) -> None:
    assert compute_kubernetes_qos(convert({"spec": spec}, Pod)) == expected


@pytest.mark.parametrize(
    ("priority_class", "priority", "expected"),
    [
        ("koord-mid", 9000, PriorityClass.MID),
        ("unknown", 9000, PriorityClass.NONE),
        ("", 9000, PriorityClass.NONE),
        (None, None, PriorityClass.NONE),
        (None, 10_000, PriorityClass.NONE),
        (None, 9999, PriorityClass.PROD),
        (None, 9000, PriorityClass.PROD),
        (None, 8999, PriorityClass.NONE),
        (None, 7999, PriorityClass.MID),
        (None, 7000, PriorityClass.MID),
        (None, 5999, PriorityClass.BATCH),
        (None, 5000, PriorityClass.BATCH),
        (None, 3999, PriorityClass.FREE),
        (None, 3000, PriorityClass.FREE),
        (None, 2999, PriorityClass.NONE),
        (None, 0, PriorityClass.NONE),
    ],
)
def test_raw_priority_class(priority_class: str | None, priority: int | None, expected: PriorityClass) -> None:
    assert priority_class_raw(_pod(priority_class=priority_class, priority=priority)) is expected


@pytest.mark.parametrize(
    ("qos", "expected"),
    [
        ("SYSTEM", PriorityClass.PROD),
        ("LSE", PriorityClass.PROD),
        ("LSR", PriorityClass.PROD),
        ("LS", PriorityClass.PROD),
        ("BE", PriorityClass.BATCH),
        (None, PriorityClass.BATCH),
    ],
)
def test_priority_class_defaults_to_that_of_the_qos_class(qos: str | None, expected: PriorityClass) -> None:
    assert priority_class_with_default(_pod(qos=qos)) is expected


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (None, 0),
        (_pod(priority=42, qos="BE"), 42),
        (_pod(priority=0, qos="BE"), 5500),
        (_pod(qos="LS"), 9500),
        (_pod(priority_class="koord-mid"), 7500),
        (_pod(priority_class="koord-free"), 3500),
    ],
)
def test_priority_value_with_default(pod: Pod | None, expected: int) -> None:
    assert priority_value_with_default(pod) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("1000", 1000),
        ("-7", -7),
        ("+7", 7),
        ("0x1F", 31),
        ("017", 15),
        ("0o17", 15),
        ("0b11", 3),
        ("1_000", 1000),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("0", 0),
        ("0_7", 7),
    ],
)
def test_sub_priority_is_read_in_gos_notation(text: str, expected: int) -> None:
    assert sub_priority({labels.PRIORITY: text}) == expected


@pytest.mark.parametrize("text", ["high", "2147483648", "1.5", "089", "_1", "1__0", "0x", " 1", "١"])
def test_a_malformed_sub_priority_is_an_error_that_names_the_label(text: str) -> None:
    with pytest.raises(InvalidFieldError, match=r"metadata.labels\[koordinator.sh/priority\]"):
        sub_priority({labels.PRIORITY: text})


def test_a_pod_without_the_label_has_no_sub_priority() -> None:
    assert sub_priority({}) == 0
