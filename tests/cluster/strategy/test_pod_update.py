from __future__ import annotations

import copy

import pytest

from koordinator.api.document import Document
from koordinator.cluster.strategy.pod import check_pod_update

OLD: Document = {
    "containers": [{"name": "a", "image": "i:1"}],
    "terminationGracePeriodSeconds": 30,
    "activeDeadlineSeconds": 10,
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "nodeSelector": {"zone": "1"},
}


def _messages(old: Document, **changes: object) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in check_pod_update({**copy.deepcopy(old), **changes}, old, [])]


@pytest.mark.parametrize(
    "changes",
    [
        {"containers": [{"name": "a", "image": "i:2"}]},
        {"activeDeadlineSeconds": 5},
        {"tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]},
        {"tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 4}]},
    ],
)
def test_allowed(changes: dict[str, object]) -> None:
    assert _messages(OLD, **changes) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"containers": []}, "spec.containers: Forbidden: pod updates may not add or remove containers"),
        ({"activeDeadlineSeconds": 11}, "spec.activeDeadlineSeconds: Invalid value: 11: must be less than"),
        ({"activeDeadlineSeconds": None}, "spec.activeDeadlineSeconds: Invalid value: null: must not update from"),
        ({"tolerations": []}, "spec.tolerations: Forbidden: existing toleration can not be modified"),
        ({"schedulingGates": [{"name": "x"}]}, "spec.schedulingGates[0].name: Forbidden: only deletion is allowed"),
        ({"nodeSelector": {"zone": "2"}}, "spec: Forbidden: pod updates may not change fields other than"),
        ({"nodeName": "n"}, "spec: Forbidden: pod updates may not change fields other than"),
    ],
)
def test_refused(changes: dict[str, object], message: str) -> None:
    found = _messages(OLD, **changes)
    assert [text[: len(message)] for text in found] == [message]


def test_gated_pod_may_be_narrowed() -> None:
    gated = {**OLD, "schedulingGates": [{"name": "x"}]}
    assert _messages(gated, nodeSelector={"zone": "1", "disk": "fast"}) == []


def test_gate_may_be_removed() -> None:
    gated = {**OLD, "schedulingGates": [{"name": "x"}]}
    assert _messages(gated, schedulingGates=[]) == []


def test_the_message_names_what_changed() -> None:
    assert _messages(OLD, nodeName="n")[0].endswith('\n  spec.nodeName: null -> "n"\n')
