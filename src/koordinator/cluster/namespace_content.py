"""What is left in a namespace that is being deleted, and the conditions that say so, in the words of
kube-controller-manager; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from koordinator.api.document import Document
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import FINISHED_PHASES
from koordinator.api.timestamps import format_time
from koordinator.cluster.resource import Resource

Wanted = Mapping[str, tuple[str, str, str]]
"""Conditions: type -> status, reason and message."""

_FAILED: Final = "NamespaceDeletionContentFailure"
_CONTENT: Final = "NamespaceContentRemaining"
_FINALIZERS: Final = "NamespaceFinalizersRemaining"
_FINE: Final[Mapping[str, tuple[str, str]]] = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    _FAILED: ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    _CONTENT: ("ContentRemoved", "All content successfully removed"),
    _FINALIZERS: ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
"""Type -> reason and message where it does not hold. The first two never do: all kinds are known here."""


@dataclass(slots=True)
class Remainder:
    """After everything that can be deleted was."""

    counts: dict[str, int] = field(default_factory=dict)
    """By kind: ``pods.`` or ``deployments.apps``."""
    finalizers: Counter[str] = field(default_factory=Counter)
    """In how many objects each is."""
    failures: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.counts and not self.failures

    def add(self, resource: Resource, namespace: str, objects: Iterable[ObjectMeta], *, may_wait: bool) -> None:
        """Objects of a kind that are left; without finalizers, nothing but a grace period (``may_wait``) explains
        that."""
        found = list(objects)
        if not found:
            return
        self.counts[f"{resource.plural}.{resource.group}"] = len(found)
        self.finalizers.update(finalizer for each in found for finalizer in each.finalizers)
        if not may_wait and not any(each.finalizers for each in found):
            kind = f"{resource.group}/{resource.version}, Resource={resource.plural}"
            self.failures.append(f"unexpected items still remain in namespace: {namespace} for gvr: {kind}")


def longest_grace(pods: Iterable[Document]) -> int:
    """The seconds that the slowest of these pods may take to end."""
    running = (pod["spec"] for pod in pods if (pod.get("status") or {}).get("phase") not in FINISHED_PHASES)
    return max((spec.get("terminationGracePeriodSeconds") or 0 for spec in running), default=0)


def seconds_since_deletion(namespace: Document, now: datetime) -> float:
    return (now - datetime.fromisoformat(namespace["metadata"]["deletionTimestamp"])).total_seconds()


def conditions(remainder: Remainder, *, counts_content: bool) -> dict[str, tuple[str, str, str]]:
    """Type -> status, reason and message. While pods are left, which go first, nobody has counted the content."""
    found = {kind: ("False", *fine) for kind, fine in _FINE.items()}
    failures, finalizers = sorted(remainder.failures), sorted(remainder.finalizers.items())
    if failures:
        text = f"Failed to delete all resource types, {len(failures)} remaining: {', '.join(failures)}"
        found[_FAILED] = ("True", "ContentDeletionFailed", text)
    if remainder.counts and counts_content:
        texts = sorted(f"{kind} has {count} resource instances" for kind, count in remainder.counts.items())
        found[_CONTENT] = ("True", "SomeResourcesRemain", f"Some resources are remaining: {', '.join(texts)}")
    if finalizers and counts_content:
        texts = [f"{finalizer} in {count} resource instances" for finalizer, count in finalizers]
        text = f"Some content in the namespace has finalizers remaining: {', '.join(texts)}"
        found[_FINALIZERS] = ("True", "SomeFinalizersRemain", text)
    return found


def set_conditions(obj: Document, wanted: Wanted, now: datetime) -> bool:
    """Give an object the conditions that are wanted, beside its others; False where it has all of them. Its status is
    replaced, not changed."""
    status = obj.get("status") or {}
    known = {each["type"]: each for each in status.get("conditions") or ()}
    result = dict(known)
    for kind, (state, reason, message) in wanted.items():
        had = known.get(kind, {})
        since = (had.get("status") == state and had.get("lastTransitionTime")) or format_time(now)
        says = {"type": kind, "status": state, "reason": reason, "message": message}
        result[kind] = {**says, "lastTransitionTime": since}
    obj["status"] = {**status, "conditions": list(result.values())}
    return result != known
