"""Pods count against quotas that pods may count against."""

from __future__ import annotations

from collections.abc import Sequence

from koordinator.api.elastic_quota import DEFAULT_QUOTA
from koordinator.api.labels import QUOTA_PREEMPTIBLE
from koordinator.api.pod import Pod
from koordinator.manager.webhook.elastic_quota.expected_quotas import ExpectedQuotas
from koordinator.manager.webhook.elastic_quota.settings import QuotaSettings
from koordinator.manager.webhook.elastic_quota.validating import PLUGIN
from koordinator.manager.webhook.pod.checks import PodReview, new_problems
from koordinator.model.quota_tree.pod_quota import quota_name_of


class QuotaPodCheck:
    """No pods in quotas that have children; and whether a pod can be preempted is decided when it is created."""

    plugin = PLUGIN

    def __init__(self, expected: ExpectedQuotas, settings: QuotaSettings) -> None:
        self._expected = expected
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
        tree = self._expected.tree()
        name = quota_name_of(pod.metadata, namespace, tree, by_namespace=self._settings.by_namespace)
        quota = tree.get(name)
        # A name that nobody knows counts as the default quota.
        if quota is None or not quota.is_parent or name == DEFAULT_QUOTA:
            return ()
        return (f"pod can not be linked to a parentQuotaGroup,quota:{name}, pod:{pod.metadata.name}",)


def _preemptible(pod: Pod) -> str:
    return pod.metadata.labels.get(QUOTA_PREEMPTIBLE, "")
