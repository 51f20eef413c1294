"""Listers for admission handlers, over informers: an admission never waits for the API server."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.core import ConfigMap, PriorityClass
from koordinator.api.elastic_quota_profile import ElasticQuotaProfile
from koordinator.api.kinds import (
    CLUSTER_COLOCATION_PROFILES,
    CONFIG_MAPS,
    ELASTIC_QUOTA_PROFILES,
    ELASTIC_QUOTAS,
    NAMESPACES,
    NODES,
    PRIORITY_CLASSES,
    RECOMMENDATIONS,
)
from koordinator.api.labels import QUOTA_NAME, QUOTA_TREE_ID
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.recommendation import POLICY, Recommendation
from koordinator.base.clock import Clock
from koordinator.base.errors import ConfigurationError
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.options import Options, PodEnhancedValidatorOptions
from koordinator.manager.recommender.policy import PolicyError, Rules, read_policy
from koordinator.manager.trimmed_objects import trimmed_pods
from koordinator.manager.webhook.elastic_quota.assume_cache import QuotaAssumeCache
from koordinator.manager.webhook.elastic_quota.mutating import RecordedWeights
from koordinator.manager.webhook.pod.enhanced_rules import EnhancedRule, EnhancedRules
from koordinator.manager.webhook.pod.recommended_requests import FoundRecommendation
from koordinator.model.recommendations import RecommendationIndex

_BY_TREE = "tree"
_BY_QUOTA = "quota that the pod names"
_WITH_QUOTA = "namespace of a pod that names a quota"
_WITHOUT_QUOTA = "namespace of a pod that names no quota"

logger = logging.getLogger(__name__)


class ProfileLister:
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


class QuotaTreeLister:
    """``QuotaTrees`` over an informer, of one namespace or of all, and the quotas that pods are accounted in. This is
    the only place that decides which of several quotas of the same name counts."""

    def __init__(self, informers: InformerSet, namespace: str, quotas: QuotaAssumeCache) -> None:
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


class RecommendationLister:
    """``PodRecommendations`` over an informer, of one namespace or of all. A policy that cannot be used, of which the
    recommender says so, counts as one that has no update mode."""

    def __init__(self, informers: InformerSet, namespace: str) -> None:
        self._index = RecommendationIndex()
        self._rules: dict[str, Rules] = {}
        informers.informer(RECOMMENDATIONS, namespace=namespace, absent_is_empty=True).add_handlers(
            name="recommended requests",
            on_add=lambda found, _: self._put(found),
            on_update=lambda _, found: self._put(found),
            on_delete=self._remove,
        )

    def __len__(self) -> int:
        return len(self._index)

    def of(self, pod: ObjectMeta, namespace: str) -> FoundRecommendation | None:
        found = self._index.find(pod, namespace)
        return FoundRecommendation(found, self._rules[found.key]) if found is not None else None

    def _put(self, found: Recommendation) -> None:
        try:
            rules = read_policy(found.metadata.annotations.get(POLICY))
        except PolicyError:
            rules = Rules()
        self._rules[found.metadata.key] = rules
        self._index.put(found)

    def _remove(self, found: Recommendation) -> None:
        self._rules.pop(found.metadata.key, None)
        self._index.remove(found)


def watch_quotas(informers: InformerSet, namespace: str, quotas: QuotaAssumeCache) -> None:
    """Feed the stored quotas, of one namespace or of all, to the assume cache ``quotas``."""
    informers.informer(ELASTIC_QUOTAS, namespace=namespace, absent_is_empty=True).add_handlers(
        name="elastic-quota-tree",
        on_add=lambda quota, initial: quotas.observe(quota),
        on_update=lambda old, new: quotas.observe(new),
        on_delete=quotas.observe_deletion,
    )


def forget_weights(informers: InformerSet, namespace: str, weights: RecordedWeights) -> None:
    """Remove the weight metrics of deleted quotas."""
    informers.informer(ELASTIC_QUOTAS, namespace=namespace, absent_is_empty=True).add_handlers(
        name="quota-shared-weight", on_delete=lambda quota: weights.forget(quota.metadata.name)
    )


class QuotaPodLister:
    """``QuotaPods`` over an informer, of one namespace or of all. A pod that names no quota, as most do where there
    are thousands, is in one index alone."""

    def __init__(self, informers: InformerSet, options: Options) -> None:
        self._pods = trimmed_pods(
            informers,
            options,
            {_BY_QUOTA: _named_quota, _WITH_QUOTA: _namespace_with_quota, _WITHOUT_QUOTA: _namespace_without_quota},
        )

    def labelled(self, quota: str) -> list[str]:
        return sorted(pod.metadata.name for pod in self._pods.by_index(_BY_QUOTA, quota))

    def unlabelled_in(self, namespace: str) -> list[str]:
        return sorted(pod.metadata.name for pod in self._pods.by_index(_WITHOUT_QUOTA, namespace))

    def any_in(self, namespace: str) -> bool:
        return any(self._pods.by_index(index, namespace) for index in (_WITHOUT_QUOTA, _WITH_QUOTA))


class PodLister:
    """The metadata of pods, of one namespace or of all; of labels and annotations, those that exempt from a rule."""

    def __init__(self, informers: InformerSet, options: Options) -> None:
        self._pods = trimmed_pods(informers, options)

    def metadata(self, namespace: str, name: str) -> ObjectMeta | None:
        pod = self._pods.get(f"{namespace}/{name}")
        return pod.metadata if pod is not None else None


def _tree(profile: ElasticQuotaProfile) -> tuple[str, ...]:
    tree = profile.metadata.labels.get(QUOTA_TREE_ID, "")
    return (tree,) if tree else ()


def _named_quota(pod: Pod) -> tuple[str, ...]:
    quota = pod.metadata.labels.get(QUOTA_NAME, "")
    return (quota,) if quota else ()


def _namespace_with_quota(pod: Pod) -> tuple[str, ...]:
    return (pod.metadata.namespace,) if pod.metadata.labels.get(QUOTA_NAME) else ()


def _namespace_without_quota(pod: Pod) -> tuple[str, ...]:
    return () if pod.metadata.labels.get(QUOTA_NAME) else (pod.metadata.namespace,)


class ConfiguredRules:
    """A callable that returns the rules in force."""

    def __init__(self, informers: InformerSet, options: PodEnhancedValidatorOptions, clock: Clock) -> None:
        self._key = f"{options.config_namespace}/{options.config_name}"
        self._interval = options.reconcile_interval.total_seconds()
        self._clock = clock
        self._rules = EnhancedRules()
        self._read: ConfigMap | None = None
        self._read_again_at = float("-inf")
        self._config_maps = informers.informer(
            CONFIG_MAPS, namespace=options.config_namespace, field_selector=f"metadata.name={options.config_name}"
        )

    def __call__(self) -> tuple[EnhancedRule, ...]:
        now = self._clock.monotonic()
        if now >= self._read_again_at:
            self._read_again_at = now + self._interval
            self._load(self._config_maps.get(self._key))
        return self._rules.in_force

    def _load(self, config_map: ConfigMap | None) -> None:
        """An invalid ConfigMap leaves the previous rules in force."""
        if config_map is self._read:
            return
        self._read = config_map
        try:
            self._rules.load(config_map.data if config_map is not None else None)
        except ConfigurationError as error:
            logger.warning("ConfigMap %s: the rules before it stay in force: %s", self._key, error)


class NodeLister:
    """The metadata of all nodes, which is what selectors read."""

    def __init__(self, informers: InformerSet) -> None:
        self._nodes = informers.informer(NODES)

    def metadata(self) -> Iterable[ObjectMeta]:
        """The metadata of the nodes, sorted by name, so that error messages always name the same example."""
        return (node.metadata for node in sorted(self._nodes.list(), key=lambda node: node.metadata.name))


class SLOConfigurationLister:
    """The SLO ConfigMap as it is stored."""

    def __init__(self, informers: InformerSet, options: Options) -> None:
        self._key = f"{options.config_namespace}/{options.slo_config_name}"
        self._config_maps = informers.informer(
            CONFIG_MAPS, namespace=options.config_namespace, field_selector=f"metadata.name={options.slo_config_name}"
        )

    def data(self) -> Mapping[str, str] | None:
        """The data of the ConfigMap; None while it does not exist."""
        found = self._config_maps.get(self._key)
        return found.data if found is not None else None
