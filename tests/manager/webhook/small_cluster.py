"""A cluster of a few namespaces, priority classes and profiles, as admission sees it, and what asks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from koordinator.api.codec import convert
from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.core import PriorityClass
from koordinator.api.elastic_quota_profile import ElasticQuotaProfile
from koordinator.api.meta import ObjectMeta
from koordinator.manager.webhook.admission import AdmissionRequest, Document, Operation


class SmallCluster:
    """Serves the profiles it is given; the namespace ``default`` takes part in co-location."""

    def __init__(self, *profiles: Document) -> None:
        self.profiles = [convert(profile, ClusterColocationProfile) for profile in profiles]
        self.namespaces: dict[str, Mapping[str, str]] = {"default": {"enable-koordinator-colocation": "true"}}
        self.priority_classes = {
            "koordinator-batch": _priority_class("koordinator-batch", 5999, "fakePreemptionPolicy"),
            "koordinator-prod": _priority_class("koordinator-prod", 9999, None),
        }

    def add_priority_class(self, document: Document) -> None:
        self.priority_classes[document["metadata"]["name"]] = convert(document, PriorityClass)

    def colocation_profiles(self) -> Iterable[ClusterColocationProfile]:
        return self.profiles

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        return self.namespaces.get(name)

    def priority_class(self, name: str) -> PriorityClass | None:
        return self.priority_classes.get(name)


class NoQuotaTrees:
    def tree_of(self, quota: str, namespace: str) -> str:
        return ""

    def profiles_of(self, tree: str) -> Iterable[ElasticQuotaProfile]:
        return ()


def profile(name: str = "test-profile", /, metadata: Document | None = None, **spec: Any) -> Document:
    return {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": name, **(metadata or {})},
        "spec": spec,
    }


def request_for(obj: Document, operation: Operation = "CREATE", old: Document | None = None) -> AdmissionRequest:
    metadata = obj.get("metadata", {})
    reservation = obj.get("kind") == "Reservation"
    return AdmissionRequest(
        operation=operation,
        group="scheduling.koordinator.sh" if reservation else "",
        version="v1alpha1" if reservation else "v1",
        resource="reservations" if reservation else "pods",
        namespace=metadata.get("namespace", "default"),
        name=metadata.get("name", ""),
        object=obj,
        old_object=old,
    )


def _priority_class(name: str, value: int, preemption_policy: str | None) -> PriorityClass:
    return PriorityClass(metadata=ObjectMeta(name=name), value=value, preemption_policy=preemption_policy)
