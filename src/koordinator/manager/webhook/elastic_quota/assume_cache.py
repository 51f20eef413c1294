"""An assume cache of quotas: the stored ones, as watched, and the changes that were admitted since.

An admitted change takes effect at once, so that the next request is checked against it and not only against what the
watch has delivered so far: a parent can be deleted right after its child. An admitted change may still not be stored; a
later webhook or a conflict may stop the write. A change is therefore assumed only until the watch delivers a later
version of the object than the change's base, which is either the change or another write, and no longer than a write
can take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from koordinator.api.elastic_quota import BUILT_IN_QUOTAS, ElasticQuota
from koordinator.api.meta import ObjectMeta
from koordinator.model.quota_tree.quota import Quota
from koordinator.model.quota_tree.tree import QuotaTree

WRITE_SECONDS: Final = 60.0
"""API servers give up requests after this long; a change that is not stored by then never will be."""


@dataclass(frozen=True, slots=True)
class _Assumed:
    """An admitted change that the watch has not delivered yet."""

    quota: Quota | None
    """None for a deletion."""
    base: int
    """The resource version that the change is based on; 0 for a creation."""
    until: float


class QuotaAssumeCache:
    """The quota tree with assumed changes. ``now`` returns a monotonic time in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._tree = QuotaTree()
        self._stored: dict[str, Quota] = {}
        self._assumed: dict[str, _Assumed] = {}
        """Ordered by expiry."""

    def tree(self) -> QuotaTree:
        """The tree, for immediate use: a kept one would miss the expiry of assumed changes, which are reverted here."""
        now = self._now()
        while self._assumed:
            key, assumed = next(iter(self._assumed.items()))
            if assumed.until > now:
                break
            self._restore(key)
        return self._tree

    def is_stored(self, key: str) -> bool:
        """Whether the watch has delivered the object; one that is only assumed may never be stored."""
        return key in self._stored

    def assume(self, new: ElasticQuota, old: ElasticQuota | None = None) -> None:
        """Assume that a quota is stored, in place of ``old`` for an update."""
        base = _version(old.metadata) if old is not None else None
        self._assume(new.metadata.key, Quota.of(new), base or 0)

    def assume_deletion(self, old: ElasticQuota) -> None:
        self._assume(old.metadata.key, None, _version(old.metadata) or 0)

    def observe(self, seen: ElasticQuota) -> None:
        """The watch delivered an object."""
        key = seen.metadata.key
        self._stored[key] = Quota.of(seen)
        assumed = self._assumed.get(key)
        version = _version(seen.metadata)
        if assumed is None or version is None or version > assumed.base:
            self._restore(key)

    def observe_deletion(self, seen: ElasticQuota) -> None:
        """The watch delivered the deletion of an object."""
        key = seen.metadata.key
        self._stored.pop(key, None)
        assumed = self._assumed.get(key)
        # An assumed creation that is not stored yet follows the deletion of its predecessor.
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


class QuotaNames(Collection[str]):
    """The names of the quotas that there are at the moment, without a copy of them."""

    def __init__(self, quotas: QuotaAssumeCache) -> None:
        self._quotas = quotas

    def __contains__(self, name: object) -> bool:
        return name in BUILT_IN_QUOTAS or (isinstance(name, str) and self._quotas.tree().get(name) is not None)

    def __iter__(self) -> Iterator[str]:
        yield from BUILT_IN_QUOTAS
        yield from (quota.name for quota in self._quotas.tree() if quota.name not in BUILT_IN_QUOTAS)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _version(metadata: ObjectMeta) -> int | None:
    """The resource version as an integer, as API servers count them up; None for anything else."""
    text = metadata.resource_version
    return int(text) if text.isascii() and text.isdigit() else None
