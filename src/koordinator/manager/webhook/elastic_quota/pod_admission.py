"""Refuses pods over their quota when they are created, instead of leaving them pending."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.pod import Pod
from koordinator.base.feature_gates import FeatureGates
from koordinator.manager import features
from koordinator.manager.webhook.admission import (
    UNMEASURED,
    AdmissionHandler,
    AdmissionRequest,
    AdmissionResponse,
    Steps,
)
from koordinator.manager.webhook.elastic_quota.account import Account, pod_usage
from koordinator.manager.webhook.elastic_quota.assume_cache import QuotaAssumeCache
from koordinator.manager.webhook.elastic_quota.settings import QuotaRefused
from koordinator.manager.webhook.pod.rules import is_terminating, pod_review
from koordinator.manager.webhook.quota_accounts import Accounts, QuotaBatches
from koordinator.model.quota_tree.pod_quota import quota_name_of
from koordinator.model.transformers import with_replaced_resources

_UNLIMITED: Final = frozenset({"", DEFAULT_QUOTA, SYSTEM_QUOTA, ROOT_QUOTA})
_PLUGIN: Final = "EvaluateQuota"


class NamedAccounts(Accounts, Protocol):
    def named(self, name: str) -> Sequence[ElasticQuota]: ...


@dataclass(frozen=True, slots=True)
class PodAdmissionSettings:
    """Which pods are counted, and how."""

    on_update: bool = False
    """Pods that move to another quota are counted as well."""
    replaced_resources: bool = False
    """Pods are counted with the replacement resources in their annotation."""
    by_namespace: bool = True

    @classmethod
    def from_gates(cls, gates: FeatureGates) -> PodAdmissionSettings:
        return cls(
            on_update=gates.enabled(features.ENABLE_QUOTA_ADMISSION_ON_UPDATE),
            replaced_resources=gates.enabled(features.ELASTIC_QUOTA_EVALUATION_TRANSFORM_POD)
            and gates.enabled(features.REPLACE_RESOURCES_TRANSFORMER),
            by_namespace=not gates.enabled(features.DISABLE_DEFAULT_QUOTA),
        )


class CountingPodHandler:
    """Wraps a pod handler, and counts the pods that it admits. Counting comes last: a refused pod takes no quota."""

    def __init__(
        self,
        inner: AdmissionHandler,
        quotas: QuotaAssumeCache,
        accounts: NamedAccounts,
        batches: QuotaBatches,
        settings: PodAdmissionSettings,
        steps: Steps = UNMEASURED,
    ) -> None:
        self.path = inner.path
        self._inner = inner
        self._quotas = quotas
        self._accounts = accounts
        self._batches = batches
        self._settings = settings
        self._steps = steps

    def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        return self._inner.handle(request)

    async def commit(self, request: AdmissionRequest) -> None:
        """Raises QuotaRefused, and the API server's error where the usage could not be stored."""
        if request.resource != "pods" or request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
            return
        review = pod_review(request)
        if is_terminating(review):
            return
        with self._steps.step(request.operation, _PLUGIN):
            name = self._name(review.pod, review.namespace)
            if review.old is not None and (
                not self._settings.on_update or name == self._name(review.old, review.namespace)
            ):
                return
            if name not in _UNLIMITED:
                await self._count(name, review.pod, dry_run=request.dry_run)

    def _name(self, pod: Pod, namespace: str) -> str:
        tree = self._quotas.tree()
        return quota_name_of(pod.metadata, namespace, tree, by_namespace=self._settings.by_namespace)

    async def _count(self, name: str, pod: Pod, *, dry_run: bool) -> None:
        found = self._accounts.named(name)
        if not found:
            raise QuotaRefused(f"elastic quota {name} not found")
        if len(found) > 1:
            raise QuotaRefused(f"more than one elastic quota {name} found")
        usage = pod_usage(with_replaced_resources(pod) if self._settings.replaced_resources else pod)
        key = found[0].metadata.key
        if dry_run:
            Account.of(self._accounts.latest(key) or found[0]).with_pod(usage)
        else:
            await self._batches.count(key, usage)
