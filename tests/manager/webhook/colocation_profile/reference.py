"""What profiles make of a pod, in the plainest way: nothing is prepared, indexed or shared, everything is copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.table import named
from koordinator.api.meta import LabelSelector
from koordinator.manager.webhook.colocation_profile.changes import ProfileError
from koordinator.manager.webhook.colocation_profile.engine import Draw
from koordinator.manager.webhook.pod.resource_specs import translate_resources
from koordinator.model.patch.errors import PatchError
from koordinator.model.patch.strategic import apply_strategic_patch
from tests.manager.webhook.small_cluster import SmallCluster

POD = named("io.k8s.api.core.v1.Pod")


def expected_pod(cluster: SmallCluster, sent: Document, namespace: str, draw: Draw) -> Document:
    """Raises ProfileError. All profiles are usable."""
    own = (sent.get("metadata") or {}).get("labels") or {}
    of_namespace = cluster.namespaces[namespace]
    profiles = sorted(cluster.profiles, key=lambda profile: profile.metadata.name)
    matching = [
        profile
        for profile in profiles
        if _matches(profile.spec.selector, own) and _matches(profile.spec.namespace_selector, of_namespace)
    ]
    pod: Document = copied(sent)
    for profile in matching:
        probability = profile.spec.probability
        if not isinstance(probability, int) or draw() < probability:
            pod = _changed(profile, pod, cluster)
    if matching:
        translate_resources(pod)
    return pod


def _matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return True
    responses = [labels.get(key) == value for key, value in selector.match_labels.items()]
    for requested in selector.match_expressions:
        responses.append(
            {
                "In": labels.get(requested.key) in requested.values,
                "NotIn": labels.get(requested.key) not in requested.values,
                "Exists": requested.key in labels,
                "DoesNotExist": requested.key not in labels,
            }[requested.operator]
        )
    return all(responses)


def _changed(profile: ClusterColocationProfile, pod: Document, cluster: SmallCluster) -> Document:
    spec = profile.spec
    metadata = pod.setdefault("metadata", {})
    labels, annotations = dict(metadata.get("labels") or {}), dict(metadata.get("annotations") or {})
    labels.update(spec.labels)
    annotations.update(spec.annotations)
    labels.update({new: labels.get(old, "") for old, new in sorted(spec.label_keys_mapping.items())})
    annotations.update({new: annotations.get(old, "") for old, new in sorted(spec.annotation_keys_mapping.items())})
    for key, suffix in spec.label_suffixes.items():
        if key in labels:
            labels[key] += suffix
    if spec.scheduler_name:
        pod["spec"]["schedulerName"] = spec.scheduler_name
    if spec.qos_class:
        labels["koordinator.sh/qosClass"] = spec.qos_class
    if spec.priority_class_name:
        _set_priority_class(pod["spec"], spec.priority_class_name, profile.metadata.name, cluster)
    if spec.koordinator_priority is not None:
        labels["koordinator.sh/priority"] = str(spec.koordinator_priority)
    for name, texts in (("labels", labels), ("annotations", annotations)):
        if texts:
            metadata[name] = texts
    return _patched(pod, copied(spec.patch), profile.metadata.name)


def _set_priority_class(pod_spec: Document, name: str, profile: str, cluster: SmallCluster) -> None:
    found = cluster.priority_class(name)
    if found is None:
        raise ProfileError(
            f'PriorityClass.scheduling.k8s.io "{name}" not found, which spec.priorityClassName of the '
            f'ClusterColocationProfile "{profile}" asks for'
        )
    pod_spec.update(priorityClassName=name, priority=found.value)
    pod_spec.pop("preemptionPolicy", None)
    if found.preemption_policy is not None:
        pod_spec["preemptionPolicy"] = found.preemption_policy


def _patched(pod: Document, patch: Any, profile: str) -> Document:
    if patch is None:
        return pod
    try:
        return apply_strategic_patch(pod, patch, POD)
    except PatchError as error:
        raise ProfileError(f'ClusterColocationProfile "{profile}": spec.patch does not fit: {error}') from error
