"""What admission handlers know of the cluster, kept by informers: an admission never waits for the API server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.core import PriorityClass
from koordinator.api.elastic_quota_profile import ElasticQuotaProfile
from koordinator.api.kinds import (
    CLUSTER_COLOCATION_PROFILES,
    ELASTIC_QUOTA_PROFILES,
    ELASTIC_QUOTAS,
    NAMESPACES,
    PRIORITY_CLASSES,
)
from koordinator.api.labels import QUOTA_NAME, QUOTA_TREE_ID
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.store import NAMESPACE_INDEX, by_namespace
from koordinator.manager.trimmed_pods import trimmed_pods
from koordinator.manager.webhook.elastic_quota.expected_quotas import ExpectedQuotas
from koordinator.manager.webhook.elastic_quota.recorded_weights import RecordedWeights

_BY_TREE = "tree"
_BY_QUOTA = "quota that the pod names"
_WITHOUT_QUOTA = "namespace of a pod that names no quota"


class KnownProfiles:
    """``ColocationCluster`` over informers."""

    def __init__(self, informers: InformerSet) -> None:
        self._profiles = informers.informer(CLUSTER_COLOCATION_PROFILES, absent_is_empty=True)
        self._namespaces = informers.informer(NAMESPACES)
        self._priority_classes = informers.informer(PRIORITY_CLASSES)

    def colocation_profiles(self) -> Iterable[ClusterColocationProfile]:
        return self._profiles.store.values()

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        namespace = self._namespaces.get(name)
        return namespace.metadata.labels if namespace is not None else None

    def priority_class(self, name: str) -> PriorityClass | None:
        return self._priority_classes.get(name)


class KnownQuotaTrees:
    """``QuotaTrees`` over an informer, of one namespace or of all, and the quotas that pods are accounted in: which of
    several quotas a name stands for is decided there and nowhere else."""

    def __init__(self, informers: InformerSet, namespace: str, quotas: ExpectedQuotas) -> None:
        self._quotas = quotas
        self._profiles = informers.informer(
            ELASTIC_QUOTA_PROFILES, namespace=namespace, absent_is_empty=True, indexes={_BY_TREE: _tree}
        )

    def tree_of(self, quota: str, namespace: str) -> str:
        tree = self._quotas.tree()
        found = tree.get(quota) or tree.claimant(namespace)
        return found.tree if found is not None else ""

    def profiles_of(self, tree: str) -> Iterable[ElasticQuotaProfile]:
        return self._profiles.by_index(_BY_TREE, tree)


def follow_quotas(informers: InformerSet, namespace: str, expected: ExpectedQuotas) -> None:
    """Keep ``expected`` at what is stored, of one namespace or of all."""
    informers.informer(ELASTIC_QUOTAS, namespace=namespace, absent_is_empty=True).add_handlers(
        name="elastic-quota-tree",
        on_add=lambda quota, initial: expected.observe(quota),
        on_update=lambda old, new: expected.observe(new),
        on_delete=expected.observe_deletion,
    )


def forget_weights(informers: InformerSet, namespace: str, weights: RecordedWeights) -> None:
    """Drop the weights of quotas that are deleted."""
    informers.informer(ELASTIC_QUOTAS, namespace=namespace, absent_is_empty=True).add_handlers(
        name="quota-shared-weight", on_delete=lambda quota: weights.forget(quota.metadata.name)
    )


class KnownQuotaPods:
    """``QuotaPods`` over an informer, of one namespace or of all."""

    def __init__(self, informers: InformerSet, namespace: str) -> None:
        self._pods = trimmed_pods(
            informers,
            namespace,
            {_BY_QUOTA: _named_quota, NAMESPACE_INDEX: by_namespace, _WITHOUT_QUOTA: _namespace_without_quota},
        )

    def labelled(self, quota: str) -> list[str]:
        return sorted(pod.metadata.name for pod in self._pods.by_index(_BY_QUOTA, quota))

    def unlabelled_in(self, namespace: str) -> list[str]:
        return sorted(pod.metadata.name for pod in self._pods.by_index(_WITHOUT_QUOTA, namespace))

    def any_in(self, namespace: str) -> bool:
        return bool(self._pods.by_index(NAMESPACE_INDEX, namespace))


class KnownPods:
    """The metadata of pods, of one namespace or of all."""

    def __init__(self, informers: InformerSet, namespace: str) -> None:
        self._pods = trimmed_pods(informers, namespace)

    def metadata(self, namespace: str, name: str) -> ObjectMeta | None:
        pod = self._pods.get(f"{namespace}/{name}")
        return pod.metadata if pod is not None else None


def _tree(profile: ElasticQuotaProfile) -> tuple[str, ...]:
    tree = profile.metadata.labels.get(QUOTA_TREE_ID, "")
    return (tree,) if tree else ()


def _named_quota(pod: Pod) -> tuple[str, ...]:
    quota = pod.metadata.labels.get(QUOTA_NAME, "")
    return (quota,) if quota else ()


def _namespace_without_quota(pod: Pod) -> tuple[str, ...]:
    return () if pod.metadata.labels.get(QUOTA_NAME) else (pod.metadata.namespace,)
