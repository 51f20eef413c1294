"""``/mutate-pod``: a pod as its creator wrote it becomes the pod that the cluster's policies make of it."""

from __future__ import annotations

from dataclasses import dataclass

from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.table import named
from koordinator.base.feature_gates import FeatureGates
from koordinator.manager import features
from koordinator.manager.webhook.admission import ALLOWED, AdmissionAnswer, AdmissionRequest
from koordinator.manager.webhook.colocation_profile.catalogue import ProfileCatalogue
from koordinator.manager.webhook.colocation_profile.changes import section
from koordinator.manager.webhook.colocation_profile.cluster import ColocationCluster
from koordinator.manager.webhook.colocation_profile.engine import Draw, ProfileEngine
from koordinator.manager.webhook.pod.device_resource_spec import normalise_device_resources
from koordinator.manager.webhook.pod.extended_resource_spec import record_extended_resources
from koordinator.manager.webhook.pod.quota_tree_affinity import QuotaTrees, add_quota_tree_affinity
from koordinator.manager.webhook.pod.resource_translation import translate_resources
from koordinator.manager.webhook.pod.working_copy import working_copy
from koordinator.manager.webhook.steps import UNMEASURED, Steps


@dataclass(frozen=True, slots=True)
class PodMutationSettings:
    """Which steps run."""

    translate_resources: bool = True
    record_extended_resources: bool = True
    quota_tree_affinity: bool = False
    normalise_device_resources: bool = True

    @classmethod
    def from_gates(cls, gates: FeatureGates) -> PodMutationSettings:
        return cls(
            translate_resources=not gates.enabled(features.COLOCATION_PROFILE_SKIP_MUTATING_RESOURCES),
            record_extended_resources=not gates.enabled(features.DISABLE_EXTENDED_RESOURCE_SPEC),
            quota_tree_affinity=gates.enabled(features.MULTI_QUOTA_TREE),
            normalise_device_resources=not gates.enabled(features.DISABLE_DEVICE_RESOURCE_SPEC),
        )


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
    ) -> None:
        pod_type = named("io.k8s.api.core.v1.Pod")
        self._catalogue = ProfileCatalogue(cluster, pod_type)
        self._engine = ProfileEngine(cluster, draw, lambda pod: section(pod, "spec"))
        self._quota_trees = quota_trees
        self._settings = settings or PodMutationSettings()
        self._steps = steps

    def handle(self, request: AdmissionRequest) -> AdmissionAnswer:
        """Raises KoordinatorError where a step cannot be done."""
        if request.resource != "pods" or request.sub_resource or request.operation != "CREATE" or not request.object:
            return ALLOWED
        namespace = (request.object.get("metadata") or {}).get("namespace") or request.namespace
        with self._steps.step(request.operation, "ClusterColocationProfile"):
            pod, warnings = self._apply_profiles(request.object, namespace)
        with self._steps.step(request.operation, "ExtendedResourceSpec"):
            if self._settings.record_extended_resources:
                record_extended_resources(pod)
        with self._steps.step(request.operation, "MultiQuotaTree"):
            if self._settings.quota_tree_affinity:
                add_quota_tree_affinity(pod, namespace, self._quota_trees)
        with self._steps.step(request.operation, "DeviceResourceSpec"):
            if self._settings.normalise_device_resources:
                normalise_device_resources(pod)
        return AdmissionAnswer(changed=pod if pod != request.object else None, warnings=warnings)

    def _apply_profiles(self, sent: Document, namespace: str) -> tuple[Document, list[str]]:
        """A copy of ``sent`` that the steps may change, and what there is to warn of."""
        own_labels = (sent.get("metadata") or {}).get("labels") or {}
        matches = self._catalogue.for_pod(own_labels, namespace)
        # Patches may write anywhere.
        pod = copied(sent) if any(profile.patch for profile in matches.profiles) else working_copy(sent)
        warnings = list(matches.warnings)
        if not matches.profiles:
            return pod, warnings
        pod = self._engine.apply(matches, pod)
        if self._settings.translate_resources and not any(profile.keeps_resources for profile in matches.profiles):
            warnings += translate_resources(pod)
        return pod, warnings
