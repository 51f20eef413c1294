"""``/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota``, and the check of pods against the quota that they name.

Annotations of quotas that cannot be read count as absent: the quota is not refused for them, but a warning names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from koordinator.api.annotations import QUOTA_GUARANTEED, QUOTA_NAMESPACES
from koordinator.api.codec import DecodeError, convert
from koordinator.api.document import Document
from koordinator.api.elastic_quota import DEFAULT_QUOTA, ElasticQuota
from koordinator.api.labels import QUOTA_PREEMPTIBLE
from koordinator.api.pod import Pod
from koordinator.manager.webhook.admission import (
    ALLOWED,
    UNMEASURED,
    AdmissionRequest,
    AdmissionResponse,
    Steps,
    content,
)
from koordinator.manager.webhook.elastic_quota.assume_cache import QuotaAssumeCache
from koordinator.manager.webhook.elastic_quota.changes import QuotaChanges, is_changed
from koordinator.manager.webhook.elastic_quota.settings import QuotaSettings
from koordinator.manager.webhook.pod.rules import PodReview, new_problems
from koordinator.model.quota_tree.annotation_values import read_amounts, read_names
from koordinator.model.quota_tree.pod_quota import quota_name_of

_READ: Final[Mapping[str, tuple[Callable[[str], Any], str]]] = MappingProxyType(
    {
        QUOTA_NAMESPACES: (read_names, 'a JSON list such as ["team-a","team-b"]'),
        QUOTA_GUARANTEED: (read_amounts, 'a JSON object such as {"cpu":"10","memory":"20Gi"}'),
    }
)
_SHOWN: Final = 40
"""The length to which annotation values are cut in warnings, since API servers cut warnings off."""
RESOURCE: Final = "elasticquotas"
PLUGIN: Final = "QuotaMetaChecker"
"""The name of all quota checks in metrics."""


def unreadable_annotations(quota: ElasticQuota) -> list[str]:
    """One warning for each annotation that cannot be read."""
    warnings = []
    for annotation, (read, allowed) in _READ.items():
        text = quota.metadata.annotations.get(annotation, "")
        try:
            read(text)
        except DecodeError:
            warnings.append(f"annotation {annotation} is ignored: {text[:_SHOWN]!r} is not {allowed}")
    return warnings


class ElasticQuotaValidatingHandler:
    """Admits and checks quotas. An admitted quota is assumed from then on; a dry run leaves no trace."""

    path = "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"

    def __init__(self, quotas: QuotaAssumeCache, changes: QuotaChanges, steps: Steps = UNMEASURED) -> None:
        self._quotas = quotas
        self._changes = changes
        self._steps = steps

    def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Raises QuotaRefused, and DecodeError for an object that is no quota."""
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

    def _create(self, request: AdmissionRequest) -> AdmissionResponse:
        new = quota_of(request.object)
        self._changes.check_creation(new)
        if not request.dry_run:
            self._quotas.assume(new)
        return _accepted(new)

    def _update(self, request: AdmissionRequest) -> AdmissionResponse:
        new, old = quota_of(request.object), quota_of(request.old_object)
        if not is_changed(new, old):
            return ALLOWED
        self._changes.check_update(new, old)
        if not request.dry_run:
            self._quotas.assume(new, old)
        return _accepted(new)

    def _delete(self, request: AdmissionRequest) -> AdmissionResponse:
        old = quota_of(request.old_object)
        self._changes.check_deletion(old)
        if not request.dry_run:
            self._quotas.assume_deletion(old)
        return ALLOWED


def _accepted(quota: ElasticQuota) -> AdmissionResponse:
    warnings = unreadable_annotations(quota)
    return AdmissionResponse(warnings=warnings) if warnings else ALLOWED


def quota_of(document: Document | None) -> ElasticQuota:
    """Decode a quota. Raises DecodeError, also without a document."""
    return convert(content(document), ElasticQuota)


class QuotaPodCheck:
    """Refuses pods in quotas that have children, and changes of a pod's preemptible label."""

    plugin = PLUGIN

    def __init__(self, quotas: QuotaAssumeCache, settings: QuotaSettings) -> None:
        self._quotas = quotas
        self._settings = settings

    def problems(self, review: PodReview) -> Sequence[str]:
        if review.old is None:
            return self._in_parent(review.pod, review.namespace)
        if _preemptible(review.old) != _preemptible(review.pod):
            return ("Preemptible label is forbidden modify now.",)
        return new_problems(
            self._in_parent(review.pod, review.namespace), self._in_parent(review.old, review.namespace)
        )

    def _in_parent(self, pod: Pod, namespace: str) -> Sequence[str]:
        if self._settings.pods_in_parents:
            return ()
        tree = self._quotas.tree()
        name = quota_name_of(pod.metadata, namespace, tree, by_namespace=self._settings.by_namespace)
        quota = tree.get(name)
        # An unknown name counts as the default quota.
        if quota is None or not quota.is_parent or name == DEFAULT_QUOTA:
            return ()
        return (f"pod can not be linked to a parentQuotaGroup,quota:{name}, pod:{pod.metadata.name}",)


def _preemptible(pod: Pod) -> str:
    return pod.metadata.labels.get(QUOTA_PREEMPTIBLE, "")
