"""``/mutate-pod``: the policies of the cluster are applied to a pod as its creator wrote it.

The steps work on a copy that shares with the request whatever no step writes to: to copy the whole pod would take as
long as all steps together, and what is shared does not have to be compared afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from koordinator.api.document import Document, copied
from koordinator.api.elastic_quota_profile import ElasticQuotaProfile
from koordinator.api.kinds import CLUSTER_COLOCATION_PROFILES, RECOMMENDATIONS, Kind
from koordinator.api.kubernetes_types.table import named
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import LabelSelector, Object
from koordinator.base.feature_gates import FeatureGates
from koordinator.manager import features
from koordinator.manager.webhook.admission import ALLOWED, UNMEASURED, AdmissionRequest, AdmissionResponse, Steps
from koordinator.manager.webhook.colocation_profile.changes import ColocationCluster, section
from koordinator.manager.webhook.colocation_profile.engine import Draw, ProfileCatalogue, ProfileEngine
from koordinator.manager.webhook.pod.recommended_requests import RecommendedRequests
from koordinator.manager.webhook.pod.resource_specs import (
    normalise_device_resources,
    record_extended_resources,
    translate_resources,
)

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_CONTAINER_LISTS: Final = ("containers", "initContainers")
_WRITTEN: Final = ("overhead", "affinity")


class QuotaTrees(Protocol):
    """What is known of quota trees, read from memory."""

    def tree_of(self, quota: str, namespace: str) -> str:
        """The tree of the quota of that name, else of the one that claims the namespace; empty without one."""
        ...

    def profiles_of(self, tree: str) -> Iterable[ElasticQuotaProfile]:
        """Those labelled with the tree, in any order."""
        ...


def add_quota_tree_affinity(pod: Document, namespace: str, trees: QuotaTrees) -> None:
    """Change ``pod`` in place; what its terms require already is not added again."""
    quota = ((pod.get("metadata") or {}).get("labels") or {}).get(QUOTA_NAME) or namespace
    tree = trees.tree_of(quota, namespace)
    if not tree:
        return
    profile = min(trees.profiles_of(tree), key=lambda each: each.metadata.key, default=None)
    if profile is None or profile.spec.node_selector is None:
        return
    requirements = _requirements(profile.spec.node_selector)
    if requirements:
        _require(pod, requirements)


def _requirements(selector: LabelSelector) -> list[Document]:
    required = [(key, "In", [value]) for key, value in sorted(selector.match_labels.items())]
    required += [(each.key, each.operator, each.values) for each in selector.match_expressions]
    return [
        {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
        for key, operator, values in required
    ]


def _require(pod: Document, requirements: list[Document]) -> None:
    required = section(section(section(section(pod, "spec"), "affinity"), "nodeAffinity"), _REQUIRED)
    if not required.get("nodeSelectorTerms"):
        required["nodeSelectorTerms"] = [{"matchExpressions": requirements}]
        return
    for term in required["nodeSelectorTerms"]:
        present = term.get("matchExpressions") or []
        term["matchExpressions"] = present + [dict(each) for each in requirements if each not in present]


def working_copy(pod: Document) -> Document:
    """Its metadata with labels and annotations, and its spec with the resources of containers, overhead and affinity,
    may be written to; everything else only replaced as a whole."""
    copy = dict(pod)
    metadata, spec = pod.get("metadata"), pod.get("spec")
    if isinstance(metadata, dict):
        copy["metadata"] = _with_copies(metadata, "labels", "annotations")
    if isinstance(spec, dict):
        own = copy["spec"] = _with_copies(spec, *_WRITTEN)
        for name in _CONTAINER_LISTS:
            if isinstance(spec.get(name), list):
                own[name] = [_container(each) for each in spec[name]]
    return copy


def _container(container: Any) -> Any:
    return _with_copies(container, "resources") if isinstance(container, dict) else container


def _with_copies(parent: Document, *names: str) -> Document:
    return parent | {name: copied(parent[name]) for name in names if name in parent}


@dataclass(frozen=True, slots=True)
class PodMutationSettings:
    """Which steps run."""

    translate_resources: bool = True
    translate_free: bool = False
    """Whether pods of the class free are translated, too."""
    record_extended_resources: bool = True
    quota_tree_affinity: bool = False
    normalise_device_resources: bool = True

    @classmethod
    def from_gates(cls, gates: FeatureGates) -> PodMutationSettings:
        return cls(
            translate_resources=not gates.enabled(features.COLOCATION_PROFILE_SKIP_MUTATING_RESOURCES),
            translate_free=gates.enabled(features.FREE_RESOURCE),
            record_extended_resources=not gates.enabled(features.DISABLE_EXTENDED_RESOURCE_SPEC),
            quota_tree_affinity=gates.enabled(features.MULTI_QUOTA_TREE),
            normalise_device_resources=not gates.enabled(features.DISABLE_DEVICE_RESOURCE_SPEC),
        )


OnApplied = Callable[[Kind[Any], Sequence[Object], str], None]


def _nobody(kind: Kind[Any], applied: Sequence[Object], namespace: str) -> None:
    """Nobody is told."""


class PodMutatingHandler:
    """Changes pods when they are created; updates pass as they are."""

    path = "/mutate-pod"

    def __init__(
        self,
        cluster: ColocationCluster,
        quota_trees: QuotaTrees,
        draw: Draw,
        settings: PodMutationSettings | None = None,
        steps: Steps = UNMEASURED,
        *,
        recommended: RecommendedRequests | None = None,
        on_applied: OnApplied = _nobody,
    ) -> None:
        """``recommended`` is None without the feature Recommender. ``on_applied`` is called with what has changed a new
        pod, profiles or a Recommendation, and the pod's namespace."""
        pod_type = named("io.k8s.api.core.v1.Pod")
        self._catalogue = ProfileCatalogue(cluster, pod_type)
        self._engine = ProfileEngine(cluster, draw, lambda pod: section(pod, "spec"))
        self._quota_trees = quota_trees
        self._settings = settings or PodMutationSettings()
        self._steps = steps
        self._recommended = recommended
        self._on_applied = on_applied

    def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Raises KoordinatorError where a step cannot be done."""
        if request.resource != "pods" or request.sub_resource or request.operation != "CREATE" or not request.object:
            return ALLOWED
        namespace = (request.object.get("metadata") or {}).get("namespace") or request.namespace
        with self._steps.step(request.operation, "ClusterColocationProfile"):
            pod, warnings = self._apply_profiles(request.object, namespace, is_dry_run=request.dry_run)
        if self._recommended is not None:
            with self._steps.step(request.operation, "Recommendation"):
                applied = self._recommended.apply(pod, namespace)
            if applied is not None and not request.dry_run:
                self._on_applied(RECOMMENDATIONS, [applied], namespace)
        with self._steps.step(request.operation, "ExtendedResourceSpec"):
            if self._settings.record_extended_resources:
                record_extended_resources(pod)
        with self._steps.step(request.operation, "MultiQuotaTree"):
            if self._settings.quota_tree_affinity:
                add_quota_tree_affinity(pod, namespace, self._quota_trees)
        with self._steps.step(request.operation, "DeviceResourceSpec"):
            if self._settings.normalise_device_resources:
                normalise_device_resources(pod)
        return AdmissionResponse(changed=pod if pod != request.object else None, warnings=warnings)

    def _apply_profiles(self, sent: Document, namespace: str, *, is_dry_run: bool) -> tuple[Document, list[str]]:
        """A copy of ``sent`` that the steps may change, and what there is to warn of."""
        own_labels = (sent.get("metadata") or {}).get("labels") or {}
        matches = self._catalogue.for_pod(own_labels, namespace)
        # Patches may write anywhere.
        pod = copied(sent) if any(profile.patch for profile in matches.profiles) else working_copy(sent)
        warnings = list(matches.warnings)
        if not matches.profiles:
            return pod, warnings
        drawn = self._engine.drawn(matches)
        pod = self._engine.apply(drawn, pod)
        if drawn and not is_dry_run:
            self._on_applied(CLUSTER_COLOCATION_PROFILES, [profile.source for profile in drawn], namespace)
        if self._settings.translate_resources and not any(profile.keeps_resources for profile in matches.profiles):
            warnings += translate_resources(pod, free=self._settings.translate_free)
        return pod, warnings
