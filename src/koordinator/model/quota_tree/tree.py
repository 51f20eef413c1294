"""The quotas of a cluster by name, as a forest below the root quota; kept by events that may come in any order.

Nothing here depends on what came first: a parent may be seen after its children, and of two quotas that share a name
or claim the same namespace the older one counts, whichever was seen first.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from datetime import datetime

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.model.quota_tree.quota import Quota


class QuotaTree:
    """Names of quotas are global; the namespaces that ElasticQuotas live in only tell objects apart."""

    def __init__(self, quotas: Iterable[Quota] = ()) -> None:
        self._objects: dict[str, Quota] = {}
        self._named: dict[str, list[Quota]] = {}
        self._children: dict[str, set[str]] = {}
        self._claims: dict[str, list[Quota]] = {}
        for quota in quotas:
            self.put(quota)

    def put(self, quota: Quota) -> None:
        """A quota that is new or changed."""
        before = self.get(quota.name)
        self._drop(quota.key)
        self._objects[quota.key] = quota
        insort(self._named.setdefault(quota.name, []), quota, key=_rank)
        self._relink(before, self.get(quota.name))

    def discard(self, key: str) -> None:
        """The object of this ``namespace/name`` is gone; one that was never seen is no error."""
        known = self._objects.get(key)
        if known is None:
            return
        before = self.get(known.name)
        self._drop(key)
        self._relink(before, self.get(known.name))

    def get(self, name: str) -> Quota | None:
        named = self._named.get(name)
        return named[0] if named else None

    def object(self, key: str) -> Quota | None:
        """That of one ``namespace/name``, also where another of its name is the one that counts."""
        return self._objects.get(key)

    def __len__(self) -> int:
        return len(self._named)

    def __iter__(self) -> Iterator[Quota]:
        """By name."""
        for name in sorted(self._named):
            yield self._named[name][0]

    def children(self, name: str) -> list[Quota]:
        """Those directly below, by name; also below a parent that has not been seen itself."""
        return [self._named[child][0] for child in sorted(self._children.get(name, ()))]

    def ancestors(self, quota: Quota) -> Iterator[Quota]:
        """From its parent up, without the root; ends where a parent is unknown, or where parents go round in a ring."""
        seen = {quota.name}
        parent = self.get(quota.parent)
        while parent is not None and parent.name != ROOT_QUOTA and parent.name not in seen:
            yield parent
            seen.add(parent.name)
            parent = self.get(parent.parent)

    def claimant(self, namespace: str) -> Quota | None:
        """The quota that the namespace is bound to by an annotation."""
        claims = self._claims.get(namespace)
        return claims[0] if claims else None

    def hierarchy(self) -> dict[str, list[str]]:
        """The names of the children of every quota, of the root, and of parents that have not been seen."""
        names = {ROOT_QUOTA, *self._named, *self._children}
        return {name: sorted(self._children.get(name, ())) for name in sorted(names)}

    def _drop(self, key: str) -> None:
        known = self._objects.pop(key, None)
        if known is None:
            return
        named = self._named[known.name]
        named.remove(known)
        if not named:
            del self._named[known.name]

    def _relink(self, before: Quota | None, after: Quota | None) -> None:
        if before is not None:
            self._unlink(before)
        if after is not None:
            self._children.setdefault(after.parent, set()).add(after.name)
            for namespace in dict.fromkeys(after.namespaces):
                insort(self._claims.setdefault(namespace, []), after, key=_rank)

    def _unlink(self, quota: Quota) -> None:
        children = self._children[quota.parent]
        children.discard(quota.name)
        if not children:
            del self._children[quota.parent]
        for namespace in dict.fromkeys(quota.namespaces):
            claims = self._claims[namespace]
            claims.remove(quota)
            if not claims:
                del self._claims[namespace]


def _rank(quota: Quota) -> tuple[datetime, str]:
    return quota.rank
