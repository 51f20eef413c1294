"""``/mutate-scheduling-sigs-k8s-io-v1alpha1-elasticquota``: sets the defaults of new quotas.

Shared weights that are set by default are exported as a metric, which is removed with its quota.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Gauge

from koordinator.api.annotations import QUOTA_SHARED_WEIGHT
from koordinator.api.codec import DecodeError
from koordinator.api.document import Document, copied
from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.api.labels import QUOTA_PARENT, QUOTA_TREE_ID
from koordinator.api.pod import ResourceList
from koordinator.manager.webhook.admission import ALLOWED, UNMEASURED, AdmissionRequest, AdmissionResponse, Steps
from koordinator.manager.webhook.colocation_profile.changes import section
from koordinator.manager.webhook.elastic_quota.assume_cache import QuotaAssumeCache
from koordinator.manager.webhook.elastic_quota.settings import QuotaRefused
from koordinator.manager.webhook.elastic_quota.validating import PLUGIN, RESOURCE, quota_of
from koordinator.model.quota_tree.annotation_values import read_amounts, write_amounts
from koordinator.model.quota_tree.tree import QuotaTree


class RecordedWeights:
    """Exports default weights. ``gauge`` has the labels quota and resource."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._resources: dict[str, set[str]] = {}

    def record(self, quota: str, weights: ResourceList) -> None:
        self.forget(quota)
        for resource, amount in weights.items():
            self._gauge.labels(quota, resource).set(amount.value)
        self._resources[quota] = set(weights)

    def forget(self, quota: str) -> None:
        for resource in self._resources.pop(quota, ()):
            self._gauge.remove(quota, resource)


RecordWeight = Callable[[str, ResourceList], None]
"""Called with a quota's name and its weights, when a quota without weights got the default ones."""


class ElasticQuotaMutatingHandler:
    """Sets the parent, the tree, and the weights by which unguaranteed capacity is shared."""

    path = "/mutate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"

    def __init__(self, quotas: QuotaAssumeCache, record_weight: RecordWeight, steps: Steps = UNMEASURED) -> None:
        self._quotas = quotas
        self._record_weight = record_weight
        self._steps = steps

    def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Raises QuotaRefused, and DecodeError for an object that is no quota."""
        if request.resource != RESOURCE or request.sub_resource or request.operation == "DELETE":
            return ALLOWED
        quota = quota_of(request.object)
        with self._steps.step(request.operation, PLUGIN):
            if request.operation != "CREATE" or quota.metadata.name == ROOT_QUOTA:
                return ALLOWED
            changed = copied(request.object)
            _fill_tree(changed, self._quotas.tree())
            if _fill_weight(changed, quota.spec.max) and not request.dry_run:
                self._record_weight(quota.metadata.name, quota.spec.max)
        return AdmissionResponse(changed=changed)


def _fill_tree(quota: Document, tree: QuotaTree) -> None:
    labels = section(section(quota, "metadata"), "labels")
    parent = labels.get(QUOTA_PARENT)
    if not parent:
        parent = labels[QUOTA_PARENT] = ROOT_QUOTA
    if labels.get(QUOTA_TREE_ID) or parent == ROOT_QUOTA:
        return
    known = tree.get(parent)
    if known is None:
        raise QuotaRefused(f"fill quota {quota['metadata'].get('name', '')} failed, parent not exist")
    if known.tree:
        labels[QUOTA_TREE_ID] = known.tree


def _fill_weight(quota: Document, most: ResourceList) -> bool:
    """Set the missing weights. Returns whether the quota had no weights at all."""
    annotations = section(section(quota, "metadata"), "annotations")
    text = annotations.get(QUOTA_SHARED_WEIGHT, "")
    if not text:
        given = (quota.get("spec") or {}).get("max")
        annotations[QUOTA_SHARED_WEIGHT] = "null" if given is None else write_amounts(most)
        return True
    weights = _read(text)
    if weights.keys() != most.keys():
        annotations[QUOTA_SHARED_WEIGHT] = write_amounts({name: weights.get(name, most[name]) for name in most})
    return False


def _read(text: str) -> ResourceList:
    try:
        return read_amounts(text)
    except DecodeError as error:
        raise QuotaRefused(f"fillDefaultQuotaInfo unmarshal sharedWeight failed:{error}") from error
