"""What kind of pod one is, as far as evictions care (upstream: pkg/utils/pod.go)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.pod import Pod

SYSTEM_CRITICAL_PRIORITY: Final = 2 * 10**9
_LATE: Final = timedelta(seconds=30)


def is_terminating(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def is_leaving(pod: Pod, now: datetime) -> bool:
    """Whether the pod is about to end. The deletion timestamp says when it should have: one that has not by then, such
    as on a node whose kubelet is gone, is not counted on."""
    end = pod.metadata.deletion_timestamp
    return end is not None and now - end <= _LATE


def is_system_critical(pod: Pod) -> bool:
    return pod.spec.priority is not None and pod.spec.priority >= SYSTEM_CRITICAL_PRIORITY


def is_of_daemon_set(pod: Pod) -> bool:
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)


def has_local_storage(pod: Pod) -> bool:
    """Data that stays behind on the node."""
    return any(volume.empty_dir is not None or volume.host_path is not None for volume in pod.spec.volumes)


def has_claim(pod: Pod) -> bool:
    return any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes)


def is_evictable_by_annotation(pod: Pod) -> bool:
    """Its annotation makes it evictable, whatever else protects it."""
    return annotation_keys.EVICTABLE in pod.metadata.annotations


def prefers_no_eviction(pod: Pod) -> bool:
    return annotation_keys.PREFER_NO_EVICTION in pod.metadata.annotations
