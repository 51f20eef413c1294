"""Profiles and pods as the original's own tests have them."""

from __future__ import annotations

from typing import Any

from koordinator.api.codec import convert
from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.document import Document
from koordinator.manager.colocation_profile.decision import compile_for_pods
from koordinator.manager.webhook.colocation_profile.compiled import CompiledProfile

MANAGED = {"config.koordinator.sh/controller-managed": "true"}
SELECTOR = {"matchLabels": {"koordinator-colocation-pod": "true"}}
PATCH = {"metadata": {"labels": {"test-patch-label": "patch-a"}, "annotations": {"test-patch-annotation": "patch-b"}}}
SPEC: dict[str, Any] = {
    "selector": SELECTOR,
    "labels": {"testLabelA": "valueA"},
    "annotations": {"testAnnotationA": "valueA"},
    "qosClass": "BE",
    "koordinatorPriority": 1111,
    "patch": PATCH,
}
RESULT_LABELS = {
    "koordinator-colocation-pod": "true",
    "testLabelA": "valueA",
    "test-patch-label": "patch-a",
    "koordinator.sh/qosClass": "BE",
    "koordinator.sh/priority": "1111",
}
RESULT_ANNOTATIONS = {"testAnnotationA": "valueA", "test-patch-annotation": "patch-b"}


def document(spec: Document, labels: dict[str, str] | None = None, name: str = "test-profile") -> Document:
    metadata = {"name": name, "labels": MANAGED if labels is None else labels}
    return {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": metadata,
        "spec": spec,
    }


def profile(labels: dict[str, str] | None = None, /, **spec: Any) -> ClusterColocationProfile:
    return convert(document(spec, labels), ClusterColocationProfile)


def compiled(**spec: Any) -> CompiledProfile:
    return compile_for_pods(profile(**spec))


def pod(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any) -> Document:
    """A pod that also has what this project does not know."""
    amounts = {"cpu": "1", "memory": "4Gi"}
    container = {"name": "test-container-a", "resources": {"limits": amounts, "requests": amounts}}
    metadata: Document = {"namespace": "default", "name": "test-pod-1", "managedFields": [{"manager": "kubectl"}]}
    if labels is not None:
        metadata["labels"] = labels
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": {"containers": [container], "newField": {"a": 1}, **spec}}
