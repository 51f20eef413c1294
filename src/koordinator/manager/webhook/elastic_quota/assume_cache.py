"""An assume cache of quotas: those that the watch shows, and the changes that were allowed since.

An allowed change counts at once, so that the next request is checked against it and not only against what the watch has
shown so far: a parent can be deleted right after its child. To be allowed is not yet to be stored, though; a later
webhook or a conflict may stop the write. A change is therefore assumed only until the watch shows a later version of
the object than the one that the change was made from, which is either the change or what came instead, and no longer
than a write can take.
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
class _Assumed:
    """An allowed change that the watch has not shown yet."""

    quota: Quota | None
    """None for a deletion."""
    base: int
    """The version that it was made from; 0 for a creation."""
    until: float


class QuotaAssumeCache:
    """``now`` is a monotonic time in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._tree = QuotaTree()
        self._stored: dict[str, Quota] = {}
        self._assumed: dict[str, _Assumed] = {}
        """In the order in which they expire."""

    def tree(self) -> QuotaTree:
        """To be read at once, not kept: changes that have expired are restored in it first."""
        now = self._now()
        while self._assumed:
            key, assumed = next(iter(self._assumed.items()))
            if assumed.until > now:
                break
            self._restore(key)
        return self._tree

    def is_stored(self, key: str) -> bool:
        """Whether the watch has shown the object; one that is only assumed may never be stored."""
        return key in self._stored

    def assume(self, new: ElasticQuota, old: ElasticQuota | None = None) -> None:
        """A quota is about to be stored, in place of ``old`` if it is an update."""
        base = _version(old.metadata) if old is not None else None
        self._assume(new.metadata.key, Quota.of(new), base or 0)

    def assume_deletion(self, old: ElasticQuota) -> None:
        self._assume(old.metadata.key, None, _version(old.metadata) or 0)

    def observe(self, seen: ElasticQuota) -> None:
        """The watch shows an object as stored."""
        key = seen.metadata.key
        self._stored[key] = Quota.of(seen)
        assumed = self._assumed.get(key)
        version = _version(seen.metadata)
        if assumed is None or version is None or version > assumed.base:
            self._restore(key)

    def observe_deletion(self, seen: ElasticQuota) -> None:
        """The watch shows that an object is gone."""
        key = seen.metadata.key
        self._stored.pop(key, None)
        assumed = self._assumed.get(key)
        # A creation that is still to be stored comes after the deletion of its predecessor.
        if assumed is None or assumed.quota is None or assumed.base > 0:
            self._restore(key)

    def _assume(self, key: str, quota: Quota | None, base: int) -> None:
        self._assumed.pop(key, None)
        self._assumed[key] = _Assumed(quota, base, self._now() + WRITE_SECONDS)
        self._show(key, quota)

    def _restore(self, key: str) -> None:
        self._assumed.pop(key, None)
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
