"""Applies one profile to one pod, by a patch that succeeds only if the pod has not changed since it was read.

Otherwise a pod that was bound a moment ago could get another quality of service than the one that its node has capacity
for. A token bucket limits the writes: a burst, then a rate per second. Without a token the writer does not wait; the
controller retries such a pod later.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from koordinator.api.codec import decode_any
from koordinator.api.document import Document
from koordinator.api.kinds import PODS
from koordinator.api.pod import Pod
from koordinator.base.token_bucket import TokenBucket
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType
from koordinator.manager.colocation_profile.decision import changed_pod, reads_whole_pod
from koordinator.manager.webhook.colocation_profile.changes import ProfileError
from koordinator.manager.webhook.colocation_profile.compiled import CompiledProfile
from koordinator.model.patch.difference import merge_difference

WAITING: Final = "spec.nodeName=,status.phase=Pending"
"""Field selector of the pods without a node."""


class Outcome(StrEnum):
    """The outcome of applying a profile to a pod."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    GONE = "gone"
    """The pod no longer exists, or no longer waits for a node."""
    CONFLICT = "conflict"
    """Another client changed the pod meanwhile."""
    REFUSED = "refused"
    """The API server rejected the patch, and would reject it again."""
    FAILED = "failed"
    RATE_LIMITED = "rate_limited"

    @property
    def is_final(self) -> bool:
        """Whether the pod needs no further work until its profile changes."""
        return self in (Outcome.CHANGED, Outcome.UNCHANGED, Outcome.REFUSED)


class PodWriter:
    """Patches pods, taking one token for each pod that costs requests."""

    def __init__(self, client: Client, bucket: TokenBucket) -> None:
        self._client = client
        self._bucket = bucket

    async def apply(self, profile: CompiledProfile, pod: Pod) -> tuple[Outcome, str]:
        """Apply the profile. Returns the outcome, and the reason where it failed. Raises KubeError for any error that
        is not about this one pod."""
        try:
            return await self._apply(profile, pod), ""
        except ProfileError as error:
            return Outcome.REFUSED, str(error)
        except ApiStatusError as error:
            if error.is_not_found:
                return Outcome.GONE, ""
            if error.is_conflict:
                return Outcome.CONFLICT, ""
            refused = error.is_bad_request or error.is_forbidden or error.is_invalid
            return Outcome.REFUSED if refused else Outcome.FAILED, str(error)

    async def _apply(self, profile: CompiledProfile, pod: Pod) -> Outcome:
        whole = reads_whole_pod(profile)
        if whole and not self._bucket.take():
            return Outcome.RATE_LIMITED
        before = await self._read(pod) if whole else _texts(pod)
        if before is None:
            return Outcome.GONE
        patch = merge_difference(before, changed_pod(profile, before))
        if not patch:
            return Outcome.UNCHANGED
        if not whole and not self._bucket.take():
            return Outcome.RATE_LIMITED
        version = before["metadata"]["resourceVersion"]
        patch["metadata"] = {**patch.get("metadata", {}), "resourceVersion": version}
        await self._client.patch(PODS, pod.metadata.name, patch, PatchType.MERGE, pod.metadata.namespace)
        return Outcome.CHANGED

    async def _read(self, pod: Pod) -> Document | None:
        """The whole pod from the API server; None if it no longer waits for a node."""
        body = await self._client.raw("GET", PODS.path(pod.metadata.namespace, pod.metadata.name))
        found: Document = decode_any(body)
        waits = not found.get("spec", {}).get("nodeName") and found.get("status", {}).get("phase") == "Pending"
        return found if waits else None


def _texts(pod: Pod) -> Document:
    """The labels and annotations from the cache, which are all that most profiles read and write."""
    metadata: dict[str, Any] = {"resourceVersion": pod.metadata.resource_version}
    if pod.metadata.labels:
        metadata["labels"] = pod.metadata.labels
    if pod.metadata.annotations:
        metadata["annotations"] = pod.metadata.annotations
    return {"metadata": metadata}
