"""Who writes a pod, or a workload that makes pods, is warned of words that stand for nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.manager.webhook.admission import ALLOWED, AdmissionRequest
from koordinator.manager.webhook.elastic_quota.assume_cache import QuotaAssumeCache, QuotaNames
from koordinator.manager.webhook.pod.template_validating import PodTemplateValidatingHandler
from koordinator.manager.webhook.pod.validating import PodValidatingHandler
from tests.manager.webhook.small_cluster import request_for

QOS = "koordinator.sh/qosClass"
QUOTA = "quota.scheduling.koordinator.sh/name"
BE = f"[{QOS}]: 'be' is no quality of service, the pod would have none: LSE, LSR, LS, BE, SYSTEM are; did you mean BE?"


def quotas(*names: str) -> QuotaNames:
    known = QuotaAssumeCache(lambda: 0.0)
    for name in names:
        known.observe(convert({"metadata": {"name": name, "namespace": "team", "resourceVersion": "1"}}, ElasticQuota))
    return QuotaNames(known)


def pod(**labels: str) -> Document:
    metadata = {"name": "a", "namespace": "default", "labels": labels}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "main"}]}}


def workload(kind: str, template: Document) -> Document:
    spec = {"template": template}
    return {
        "kind": kind,
        "metadata": {"name": "a"},
        "spec": {"jobTemplate": {"spec": spec}} if kind == "CronJob" else spec,
    }


def warned(labels: dict[str, str], old: dict[str, str] | None = None) -> Sequence[str]:
    handler = PodValidatingHandler(quotas=quotas("vision", "speech"))
    return handler.handle(
        request_for(pod(**labels)) if old is None else request_for(pod(**labels), "UPDATE", pod(**old))
    ).warnings


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, ()),
        ({QOS: "LS", QUOTA: "vision", "app.kubernetes.io/name": "qosClas"}, ()),
        ({QOS: ""}, ()),
        ({QUOTA: "koordinator-default-quota"}, ()),
        ({QOS: "be"}, (f"metadata.labels{BE}",)),
        (
            {QUOTA: "visoin"},
            (
                f"metadata.labels[{QUOTA}]: there is no quota 'visoin', the pod would be of the default quota; "
                "did you mean vision?",
            ),
        ),
        (
            {"koordinator.sh/qosclas": "BE"},
            (f"metadata.labels[koordinator.sh/qosclas]: no program reads it; did you mean {QOS}?",),
        ),
    ],
)
def test_a_new_pod(labels: dict[str, str], expected: Sequence[str]) -> None:
    assert tuple(warned(labels)) == expected


def test_an_update_repeats_no_warning() -> None:
    assert warned({QOS: "be", "a": "b"}, {QOS: "be"}) == ()


@pytest.mark.parametrize(
    ("kind", "path"), [("Deployment", "spec.template"), ("CronJob", "spec.jobTemplate.spec.template")]
)
def test_the_template_of_a_workload(kind: str, path: str) -> None:
    handler = PodTemplateValidatingHandler(quotas())
    document = workload(kind, pod(**{QOS: "be"}))
    request = AdmissionRequest("CREATE", "apps", "v1", "deployments", object=document)
    assert tuple(handler.handle(request).warnings) == (f"{path}.metadata.labels{BE}",)


def test_a_workload_without_a_mistake() -> None:
    request = AdmissionRequest("CREATE", "apps", "v1", "deployments", object=workload("Deployment", pod(**{QOS: "BE"})))
    assert PodTemplateValidatingHandler(quotas()).handle(request) is ALLOWED
