"""Both handlers over quotas and pods in memory, as the watch would have brought them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from koordinator.api.codec import convert
from koordinator.api.document import Document, copied
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.base.clock import ManualClock
from koordinator.manager.webhook.admission import AdmissionRequest, Operation
from koordinator.manager.webhook.elastic_quota.assume_cache import QuotaAssumeCache
from koordinator.manager.webhook.elastic_quota.changes import QuotaChanges
from koordinator.manager.webhook.elastic_quota.mutating import ElasticQuotaMutatingHandler
from koordinator.manager.webhook.elastic_quota.settings import QuotaRefused, QuotaSettings
from koordinator.manager.webhook.elastic_quota.validating import ElasticQuotaValidatingHandler


@dataclass(frozen=True)
class Pod:
    namespace: str
    name: str
    quota: str = ""


class Pods:
    """``QuotaPods`` over a list."""

    def __init__(self) -> None:
        self.pods: list[Pod] = []

    def labelled(self, quota: str) -> list[str]:
        return sorted(pod.name for pod in self.pods if pod.quota == quota)

    def unlabelled_in(self, namespace: str) -> list[str]:
        return sorted(pod.name for pod in self.pods if pod.namespace == namespace and not pod.quota)

    def any_in(self, namespace: str) -> bool:
        return any(pod.namespace == namespace for pod in self.pods)


def quota_request(
    operation: Operation, new: Document | None = None, old: Document | None = None, **more: Any
) -> AdmissionRequest:
    metadata = (new or old or {}).get("metadata", {})
    return AdmissionRequest(
        operation=operation,
        group="scheduling.sigs.k8s.io",
        version="v1alpha1",
        resource="elasticquotas",
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        object=new,
        old_object=old,
        **more,
    )


class QuotaBench:
    """``create``, ``update`` and ``delete`` respond with what the user reads; empty when the change is accepted."""

    def __init__(self, settings: QuotaSettings | None = None) -> None:
        self.clock = ManualClock()
        self.quotas = QuotaAssumeCache(self.clock.monotonic)
        self.pods = Pods()
        self.recorded: dict[str, Document] = {}
        changes = QuotaChanges(self.quotas, self.pods, settings or QuotaSettings())
        self.validating = ElasticQuotaValidatingHandler(self.quotas, changes)
        self.mutating = ElasticQuotaMutatingHandler(self.quotas, self._record)

    def filled(self, new: Document) -> Document:
        """The document as the mutating webhook makes it."""
        changed = self.mutating.handle(quota_request("CREATE", new)).changed
        return new if changed is None else changed

    def create(self, new: Document, *, dry_run: bool = False) -> str:
        return self._reviewed(quota_request("CREATE", new, dry_run=dry_run))

    def update(self, old: Document, new: Document, *, dry_run: bool = False) -> str:
        return self._reviewed(quota_request("UPDATE", new, old, dry_run=dry_run))

    def delete(self, old: Document, *, dry_run: bool = False) -> str:
        return self._reviewed(quota_request("DELETE", None, old, dry_run=dry_run))

    def observe(self, *documents: Document) -> None:
        for document in documents:
            self.quotas.observe(convert(document, ElasticQuota))

    def observe_deletion(self, document: Document) -> None:
        self.quotas.observe_deletion(convert(document, ElasticQuota))

    def hierarchy(self) -> dict[str, list[str]]:
        return self.quotas.tree().hierarchy()

    def _reviewed(self, request: AdmissionRequest) -> str:
        try:
            response = self.validating.handle(request)
        except QuotaRefused as refused:
            return str(refused)
        assert response.allowed
        return ""

    def _record(self, quota: str, weights: Any) -> None:
        self.recorded[quota] = {resource: str(amount) for resource, amount in weights.items()}


def changed(document: Document, labels: Document | None = None, **spec: Any) -> Document:
    """A copy with other labels (None removes) or another max or min."""
    new: Document = copied(document)
    for key, value in (labels or {}).items():
        new["metadata"]["labels"][f"quota.scheduling.koordinator.sh/{key}"] = value
    new["spec"].update(spec)
    return new


def versioned(document: Document, version: int) -> Document:
    new: Document = copied(document)
    new["metadata"]["resourceVersion"] = str(version)
    return new
