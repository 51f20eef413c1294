"""``/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota``: quotas that the tree has no room for are refused."""

from __future__ import annotations

from typing import Final

from koordinator.api.codec import DecodeError, convert
from koordinator.api.document import Document
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.manager.webhook.admission import ALLOWED, AdmissionAnswer, AdmissionRequest
from koordinator.manager.webhook.elastic_quota.changes import QuotaChanges, is_changed
from koordinator.manager.webhook.elastic_quota.expected_quotas import ExpectedQuotas
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
                    self._create(request)
                case "UPDATE":
                    self._update(request)
                case "DELETE":
                    self._delete(request)
        return ALLOWED

    def _create(self, request: AdmissionRequest) -> None:
        new = quota_of(request.object)
        self._changes.check_creation(new)
        if not request.dry_run:
            self._expected.accept(new)

    def _update(self, request: AdmissionRequest) -> None:
        new, old = quota_of(request.object), quota_of(request.old_object)
        if not is_changed(new, old):
            return
        self._changes.check_update(new, old)
        if not request.dry_run:
            self._expected.accept(new, old)

    def _delete(self, request: AdmissionRequest) -> None:
        old = quota_of(request.old_object)
        self._changes.check_deletion(old)
        if not request.dry_run:
            self._expected.accept_deletion(old)


def quota_of(document: Document | None) -> ElasticQuota:
    """Raises DecodeError, also where there is nothing to decode."""
    if document is None:
        raise DecodeError("there is no content to decode")
    return convert(document, ElasticQuota)
