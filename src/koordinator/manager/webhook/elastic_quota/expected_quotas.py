"""The quotas of the cluster as they will be once everything that has been accepted is stored.

An accepted change counts at once, so that the next request is judged by it and not by what the watch has brought so
far: a parent can be deleted right after its child. Acceptance is not yet storage, though; a later webhook or a conflict
may stop the write. A change therefore counts only until the watch shows a later version of the object than the one that
the change was made from, which is either the change or what came instead, and no longer than a write can take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.meta import ObjectMeta
from koordinator.model.quota_tree.quota import Quota
from koordinator.model.quota_tree.tree import QuotaTree

WRITE_SECONDS: Final = 60.0
"""API servers give up requests after this long; a change that is not stored by then never will be."""


@dataclass(frozen=True, slots=True)
class _Awaited:
    """An accepted change that the watch has not shown yet."""

    quota: Quota | None
    """None for a deletion."""
    base: int
    """The version that it was made from; 0 for a creation."""
    until: float


class ExpectedQuotas:
    """``now`` is a monotonic time in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._tree = QuotaTree()
        self._stored: dict[str, Quota] = {}
        self._awaited: dict[str, _Awaited] = {}
        """Those that time is up for first come first."""

    def tree(self) -> QuotaTree:
        """To be read at once, not kept: changes that were never stored have been taken back in it."""
        now = self._now()
        while self._awaited:
            key, awaited = next(iter(self._awaited.items()))
            if awaited.until > now:
                break
            self._settle(key)
        return self._tree

    def is_stored(self, key: str) -> bool:
        """Whether the watch has shown the object; one that is only accepted may yet come to nothing."""
        return key in self._stored

    def accept(self, new: ElasticQuota, old: ElasticQuota | None = None) -> None:
        """A quota is about to be stored, in place of ``old`` if it is an update."""
        base = _version(old.metadata) if old is not None else None
        self._await(new.metadata.key, Quota.of(new), base or 0)

    def accept_deletion(self, old: ElasticQuota) -> None:
        self._await(old.metadata.key, None, _version(old.metadata) or 0)

    def observe(self, seen: ElasticQuota) -> None:
        """The watch shows an object as stored."""
        key = seen.metadata.key
        self._stored[key] = Quota.of(seen)
        awaited = self._awaited.get(key)
        version = _version(seen.metadata)
        if awaited is None or version is None or version > awaited.base:
            self._settle(key)

    def observe_deletion(self, seen: ElasticQuota) -> None:
        """The watch shows that an object is gone."""
        key = seen.metadata.key
        self._stored.pop(key, None)
        awaited = self._awaited.get(key)
        # A creation that is still to be stored comes after the deletion of its predecessor.
        if awaited is None or awaited.quota is None or awaited.base > 0:
            self._settle(key)

    def _await(self, key: str, quota: Quota | None, base: int) -> None:
        self._awaited.pop(key, None)
        self._awaited[key] = _Awaited(quota, base, self._now() + WRITE_SECONDS)
        self._show(key, quota)

    def _settle(self, key: str) -> None:
        self._awaited.pop(key, None)
        self._show(key, self._stored.get(key))

    def _show(self, key: str, quota: Quota | None) -> None:
        if quota is None:
            self._tree.discard(key)
        else:
            self._tree.put(quota)


def _version(metadata: ObjectMeta) -> int | None:
    """API servers count versions up; None for whatever else may stand there."""
    text = metadata.resource_version
    return int(text) if text.isascii() and text.isdigit() else None
