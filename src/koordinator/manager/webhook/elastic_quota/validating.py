"""``/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota``: quotas that the tree has no room for are refused."""

from __future__ import annotations

from typing import Final

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.manager.webhook.admission import ALLOWED, AdmissionAnswer, AdmissionRequest, content
from koordinator.manager.webhook.elastic_quota.changes import QuotaChanges, is_changed
from koordinator.manager.webhook.elastic_quota.expected_quotas import ExpectedQuotas
from koordinator.manager.webhook.elastic_quota.unreadable import unreadable_annotations
from koordinator.manager.webhook.steps import UNMEASURED, Steps

RESOURCE: Final = "elasticquotas"
PLUGIN: Final = "QuotaMetaChecker"
"""The name of all quota checks in metrics."""


class ElasticQuotaValidatingHandler:
    """What is accepted counts from then on; a dry run leaves nothing behind."""

    path = "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"

    def __init__(self, expected: ExpectedQuotas, changes: QuotaChanges, steps: Steps = UNMEASURED) -> None:
        self._expected = expected
        self._changes = changes
        self._steps = steps

    def handle(self, request: AdmissionRequest) -> AdmissionAnswer:
        """Raises QuotaRefused, and DecodeError for what is no quota."""
        if request.resource != RESOURCE or request.sub_resource:
            return ALLOWED
        with self._steps.step(request.operation, PLUGIN):
            match request.operation:
                case "CREATE":
                    return self._create(request)
                case "UPDATE":
                    return self._update(request)
                case "DELETE":
                    return self._delete(request)
        return ALLOWED

    def _create(self, request: AdmissionRequest) -> AdmissionAnswer:
        new = quota_of(request.object)
        self._changes.check_creation(new)
        if not request.dry_run:
            self._expected.accept(new)
        return _accepted(new)

    def _update(self, request: AdmissionRequest) -> AdmissionAnswer:
        new, old = quota_of(request.object), quota_of(request.old_object)
        if not is_changed(new, old):
            return ALLOWED
        self._changes.check_update(new, old)
        if not request.dry_run:
            self._expected.accept(new, old)
        return _accepted(new)

    def _delete(self, request: AdmissionRequest) -> AdmissionAnswer:
        old = quota_of(request.old_object)
        self._changes.check_deletion(old)
        if not request.dry_run:
            self._expected.accept_deletion(old)
        return ALLOWED


def _accepted(quota: ElasticQuota) -> AdmissionAnswer:
    warnings = unreadable_annotations(quota)
    return AdmissionAnswer(warnings=warnings) if warnings else ALLOWED


def quota_of(document: Document | None) -> ElasticQuota:
    """Raises DecodeError, also where there is nothing to decode."""
    return convert(content(document), ElasticQuota)
