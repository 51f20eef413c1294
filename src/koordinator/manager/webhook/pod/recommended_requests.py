"""A pod that is created requests what its Recommendation says, where the policy of that has an update mode.

This comes after the ClusterColocationProfiles, whose labels a selector may match and whose class decides what resources
are called, and before everything that reads requests. An annotation of the pod says what was changed, or why nothing
was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from koordinator.api.codec import convert, encode, to_document
from koordinator.api.document import Document
from koordinator.api.labels import QOS_CLASS
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import ResourceRequirements
from koordinator.api.priority import PriorityClass
from koordinator.api.qos import qos_class_of_name
from koordinator.api.recommendation import APPLIED, BY_ADMISSION, AppliedRecommendation, ContainerChange, Recommendation
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.manager.recommender.policy import Rules
from koordinator.manager.webhook.colocation_profile.changes import section
from koordinator.manager.webhook.pod.resource_specs import LIMITS, REQUESTS, containers, priority_class_of, writable
from koordinator.model.container_sizes import Bounds, PodShape, SizedContainer, Sizing, decide_sizes
from koordinator.model.recommendations import Recommended


class FoundRecommendation(NamedTuple):
    """The Recommendation of a pod, and its policy."""

    recommended: Recommended
    rules: Rules


class PodRecommendations(Protocol):
    """What is known of Recommendations, read from memory."""

    def __len__(self) -> int: ...

    def of(self, pod: ObjectMeta, namespace: str) -> FoundRecommendation | None: ...


BoundsOf = Callable[[str], Mapping[str, Bounds]]
"""What the LimitRanges of a namespace allow a container, by resource name."""


def unbounded(namespace: str) -> Mapping[str, Bounds]:
    """There are no LimitRanges."""
    return {}


class RecommendedRequests:
    """The step of the pod webhook."""

    def __init__(
        self,
        recommendations: PodRecommendations,
        now: Callable[[], datetime],
        *,
        bounds_of: BoundsOf = unbounded,
        translate_free: bool = False,
    ) -> None:
        """``translate_free``: whether free pods request resources of their class."""
        self._recommendations = recommendations
        self._now = now
        self._bounds_of = bounds_of
        self._classes = {PriorityClass.BATCH, PriorityClass.MID} | ({PriorityClass.FREE} if translate_free else set())

    def apply(self, pod: Document, namespace: str) -> Recommendation | None:
        """Change ``pod`` in place. Returns the Recommendation that has changed it. Raises DecodeError."""
        if not len(self._recommendations):
            return None
        metadata = pod.get("metadata") or {}
        read = {name: metadata[name] for name in ("labels", "ownerReferences") if metadata.get(name)}
        found = self._recommendations.of(convert(read, ObjectMeta), namespace)
        if found is None or not found.rules.is_applied:
            return None
        recommended, rules = found
        now = self._now()
        skipped = recommended.unusable(now, low_confidence_is_used=rules.low_confidence_is_used) or _obstacle(pod)
        changes = {} if skipped else self._changes(pod, namespace, recommended, rules)
        if not (changes or skipped):
            return None
        _write(pod, changes)
        applied = AppliedRecommendation(
            recommendation=recommended.source.metadata.name,
            by=BY_ADMISSION,
            at=now.replace(microsecond=0),
            containers=dict(changes),
            skipped=skipped,
        )
        section(section(pod, "metadata"), "annotations")[APPLIED] = encode(to_document(applied)).decode()
        return recommended.source if changes else None

    def _changes(
        self, pod: Document, namespace: str, recommended: Recommended, rules: Rules
    ) -> Mapping[str, ContainerChange]:
        priority = priority_class_of(pod)
        labels = (pod.get("metadata") or {}).get("labels") or {}
        shape = PodShape(
            qos_class_of_name(labels.get(QOS_CLASS, "")),
            priority if priority in self._classes else PriorityClass.NONE,
        )
        sizing = Sizing(requests_only=rules.requests_only, bounds=self._bounds_of(namespace))
        return decide_sizes(_sized(pod), recommended.containers, shape, sizing)


def _long_running(pod: Document) -> Sequence[Document]:
    """The containers, and the init containers that are sidecars."""
    sidecars = [each for each in containers(pod, "initContainers") if each.get("restartPolicy") == "Always"]
    return [*containers(pod, "containers"), *sidecars]


def _sized(pod: Document) -> Sequence[SizedContainer]:
    found = []
    for each in _long_running(pod):
        resources = convert(each.get("resources") or {}, ResourceRequirements)
        found.append(SizedContainer(each.get("name") or "", resources.requests, resources.limits))
    return found


def _obstacle(pod: Document) -> str:
    """Why the containers of the pod keep their requests; empty if nothing speaks against new ones."""
    whole = (pod.get("spec") or {}).get("resources") or {}
    if any(name in (whole.get(part) or {}) for part in (REQUESTS, LIMITS) for name in (CPU, MEMORY)):
        return "the pod has requests or limits of its own (spec.resources), which its containers must not exceed"
    return ""


def _write(pod: Document, changes: Mapping[str, ContainerChange]) -> None:
    for container in _long_running(pod):
        change = changes.get(container.get("name") or "")
        if change is None:
            continue
        for part, amounts in ((REQUESTS, change.requests), (LIMITS, change.limits)):
            if amounts:
                writable(container, part).update({name: str(each.after) for name, each in amounts.items()})
