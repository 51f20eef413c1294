"""Which pods are refused, and in which words: the cases of the original's own tests."""

from __future__ import annotations

import pytest

from koordinator.api.codec import DecodeError
from koordinator.api.document import Document
from koordinator.manager.webhook.admission import ALLOWED, Operation
from koordinator.manager.webhook.pod.rules import PodReview
from koordinator.manager.webhook.pod.validating import PodRefused, PodValidatingHandler, PodValidationSettings
from tests.manager.webhook.small_cluster import request_for

QOS = "koordinator.sh/qosClass"
SUB_PRIORITY = "koordinator.sh/priority"
REQUESTS = "pod.spec.containers[*].resources.requests"
BATCH = {"kubernetes.io/batch-cpu": "1", "kubernetes.io/batch-memory": "4Gi"}
BATCH_WITHOUT_BE = (
    f"labels.{QOS}: Required value: must specify koordinator QoS BE with koordinator colocation resources"
)


def pod(qos: str = "", priority: int | None = None, requests: Document | None = None, **metadata: object) -> Document:
    labels = {QOS: qos} if qos else {}
    return {
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "default", "labels": labels, **metadata},
        "spec": {"priority": priority, "containers": [{"name": "main", "resources": {"requests": requests or {}}}]},
    }


def refusal(
    document: Document, old: Document | None = None, settings: PodValidationSettings | None = None
) -> str | None:
    """What the user reads; None for a pod that passes."""
    handler = PodValidatingHandler(settings=settings)
    operation: Operation = "CREATE" if old is None else "UPDATE"
    try:
        response = handler.handle(request_for(document, operation, old))
    except PodRefused as refused:
        return str(refused)
    assert response.allowed
    return None


def combination(qos: str, priority: str) -> str:
    return f"Pod: Forbidden: {QOS}={qos} and priorityClass={priority} cannot be used in combination"


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        (pod(), None),
        (pod("BE", 5000, BATCH), None),
        (pod("", 6666, BATCH), BATCH_WITHOUT_BE),
        (pod("BE", 3500, {"kubernetes.io/free-cpu": "1"}), None),
        (pod("LS", 3500, {"kubernetes.io/free-cpu": "1"}), BATCH_WITHOUT_BE),
        (pod("LS", 9000, {"kubernetes.io/batch-cpu": "1"}), BATCH_WITHOUT_BE),
        (pod("LS", 9000, {"kubernetes.io/batch-cpu": "0"}), None),
        (pod("LS", 7000, {"kubernetes.io/mid-cpu": "1"}), None),
        (pod("BE", 5000), None),
        (pod("BE", 3000), None),
        (pod("BE", 7000), None),
        (pod("BE", 9999), combination("BE", "koord-prod")),
        (pod("BE"), combination("BE", "")),
        (pod("LSR", 9999, {"cpu": "1"}), None),
        (pod("LSR", None, {"cpu": "1"}), combination("LSR", "")),
        (pod("LSR", 5999, {"cpu": "1"}), combination("LSR", "koord-batch")),
        (pod("LSR", 7999, {"cpu": "1"}), combination("LSR", "koord-mid")),
        (pod("LSR", 3999, {"cpu": "1"}), combination("LSR", "koord-free")),
        (pod("LSE", 5999, {"cpu": "1"}), None),
        (pod("LS", 9999, {"cpu": "1", "memory": "4Gi"}), None),
        (
            pod("LSR", 9999, {"memory": "4Gi"}),
            f"{REQUESTS}: Required value: LSR Pod must declare the requested CPUs",
        ),
        (pod("LSE", 9999, {"cpu": "0"}), f"{REQUESTS}: Required value: LSR Pod must declare the requested CPUs"),
        (
            pod("LSR", 9999, {"cpu": "100m"}),
            f'{REQUESTS}: Invalid value: "100m": the requested CPUs of LSR Pod must be integer',
        ),
        (
            pod("LSR", 5999, {"cpu": "1500m"}),
            f'[{combination("LSR", "koord-batch")}, {REQUESTS}: Invalid value: "1500m": '
            "the requested CPUs of LSR Pod must be integer]",
        ),
    ],
)
def test_what_may_be_created(document: Document, wanted: str | None) -> None:
    assert refusal(document) == wanted


@pytest.mark.parametrize(
    ("document", "old", "wanted"),
    [
        (pod("BE", 5000), pod("BE", 5000), None),
        (pod("LS"), pod("LSE", None, {"cpu": "1"}), f'labels.{QOS}: Invalid value: "LS": field is immutable'),
        (pod(), pod("LS"), f'labels.{QOS}: Invalid value: "": field is immutable'),
        (pod("", 9999), pod("", 5000), 'spec.priority: Invalid value: "koord-prod": field is immutable'),
        (pod("", 9999), pod("", 9000), None),
        (pod(), pod("", 5000), 'spec.priority: Invalid value: "": field is immutable'),
        (
            pod(labels={SUB_PRIORITY: "8888"}),
            pod(labels={SUB_PRIORITY: "9999"}),
            f'labels.{SUB_PRIORITY}: Invalid value: "8888": field is immutable',
        ),
        (pod(), pod(labels={SUB_PRIORITY: "9999"}), f'labels.{SUB_PRIORITY}: Invalid value: "": field is immutable'),
    ],
)
def test_what_an_update_may_change(document: Document, old: Document, wanted: str | None) -> None:
    assert refusal(document, old) == wanted


def test_several_changes_are_all_named() -> None:
    assert refusal(pod("LS", 9000), pod("BE", 5000)) == (
        f'[labels.{QOS}: Invalid value: "LS": field is immutable, '
        'spec.priority: Invalid value: "koord-prod": field is immutable]'
    )


def test_the_gate_lets_the_sub_priority_change() -> None:
    settings = PodValidationSettings(fixed_sub_priority=False)
    assert refusal(pod(labels={SUB_PRIORITY: "8"}), pod(labels={SUB_PRIORITY: "9"}), settings) is None


RESERVE = {"scheduling.koordinator.sh/reserve-pod": "true"}


def test_only_the_scheduler_makes_up_pods_for_reservations() -> None:
    wanted = "annotations.scheduling.koordinator.sh/reserve-pod: Forbidden: cannot set in annotations"
    assert refusal(pod(annotations=RESERVE)) == wanted
    assert refusal(pod(annotations=RESERVE), pod()) == wanted


@pytest.mark.parametrize(
    "violating",
    [
        pod("BE", 9999),
        pod("LSR", 9999, {"cpu": "100m"}),
        pod("", 9999, BATCH),
        pod(annotations=RESERVE),
    ],
)
def test_an_update_passes_that_leaves_a_violation_as_it_was(violating: Document) -> None:
    labels = {**violating["metadata"]["labels"], "other": "changed"}
    assert refusal({**violating, "metadata": {**violating["metadata"], "labels": labels}}, violating) is None


def test_an_update_does_not_pass_that_violates_in_another_way() -> None:
    wanted = f'{REQUESTS}: Invalid value: "200m": the requested CPUs of LSR Pod must be integer'
    assert refusal(pod("LSR", 9999, {"cpu": "200m"}), pod("LSR", 9999, {"cpu": "100m"})) == wanted


def test_a_terminating_pod_passes() -> None:
    terminating = pod("BE", 9999, deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["example.com/a"])
    assert refusal(pod("LS", 9999), terminating) is None


def test_other_requests_pass() -> None:
    handler = PodValidatingHandler()
    violating = pod("BE", 9999)
    for request in (request_for(violating, "DELETE"), request_for({**violating, "kind": "Reservation"})):
        assert handler.handle(request) is ALLOWED


def test_what_is_no_pod_cannot_be_checked() -> None:
    handler = PodValidatingHandler()
    with pytest.raises(DecodeError, match="labels"):
        handler.handle(request_for({"metadata": {"labels": []}}))


class Check:
    def __init__(self, plugin: str, problem: str, log: list[str]) -> None:
        self.plugin = plugin
        self._problem = problem
        self._log = log

    def problems(self, review: PodReview) -> list[str]:
        self._log.append(f"{self.plugin} of {review.namespace}/{review.pod.metadata.name}")
        return [self._problem] if self._problem else []


def test_checks_of_quotas_run_until_one_refuses() -> None:
    log: list[str] = []
    checks = [Check("First", "", log), Check("Second", "over quota", log), Check("Third", "never asked", log)]
    handler = PodValidatingHandler(quota_checks=checks)
    with pytest.raises(PodRefused, match=r"^over quota$"):
        handler.handle(request_for(pod()))
    assert log == ["First of default/a", "Second of default/a"]
