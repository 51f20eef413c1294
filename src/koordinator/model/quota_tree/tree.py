"""The quotas of a cluster by name, as a forest below the root quota, with the sums of the children of each.

The forest is updated by events that may come in any order: a parent may be seen after its children, and of two quotas
that share a name or claim the same namespace the older one counts, whichever was seen first.

A change of one quota is checked against the sums of its siblings. Adding these up each time would take time
proportional to the siblings; thousands below one parent are not rare where each team or queue has a quota.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.api.pod import ResourceList
from koordinator.model.quota_tree.amounts import Amounts, exact, less
from koordinator.model.quota_tree.quota import Quota, Shape


class Children:
    """The children of one quota. Sums omit names whose amounts add up to nothing."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._shapes: Counter[Shape] = Counter()
        self.min: Amounts = {}
        self.guaranteed: Amounts = {}

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        """Names, sorted."""
        return iter(sorted(self._names))

    @property
    def shapes(self) -> Iterable[Shape]:
        """Each once, in no order."""
        return self._shapes.keys()

    def add(self, quota: Quota) -> None:
        """Add a quota that is not among them yet."""
        self._names.add(quota.name)
        self._shapes[quota.shape] += 1
        _add(self.min, quota.min, 1)
        _add(self.guaranteed, quota.guaranteed, 1)

    def remove(self, quota: Quota) -> None:
        """Remove a quota, which must equal the one that was added."""
        self._names.remove(quota.name)
        self._shapes[quota.shape] -= 1
        if not self._shapes[quota.shape]:
            del self._shapes[quota.shape]
        _add(self.min, quota.min, -1)
        _add(self.guaranteed, quota.guaranteed, -1)


def _add(total: Amounts, resources: ResourceList, times: int) -> None:
    for name, quantity in resources.items():
        amount = total.get(name, 0) + times * quantity.nanos
        if amount:
            total[name] = amount
        else:
            total.pop(name, None)


_NONE: Final = Children()


class QuotaTree:
    """Names of quotas are global; the namespaces of ElasticQuotas only distinguish objects."""

    def __init__(self, quotas: Iterable[Quota] = ()) -> None:
        self._objects: dict[str, Quota] = {}
        self._named: dict[str, list[Quota]] = {}
        self._children: dict[str, Children] = {}
        self._claims: dict[str, list[Quota]] = {}
        for quota in quotas:
            self.put(quota)

    def put(self, quota: Quota) -> None:
        """Add or replace a quota."""
        before = self.get(quota.name)
        self._drop(quota.key)
        self._objects[quota.key] = quota
        insort(self._named.setdefault(quota.name, []), quota, key=_rank)
        self._relink(before, self.get(quota.name))

    def discard(self, key: str) -> None:
        """Remove the quota of the object ``namespace/name``; one that was never seen is no error."""
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
        """The quota of the object ``namespace/name``, also where another object of its name counts."""
        return self._objects.get(key)

    def __iter__(self) -> Iterator[Quota]:
        """By name."""
        for name in sorted(self._named):
            yield self._named[name][0]

    def children(self, name: str) -> list[Quota]:
        """The direct children, by name; also those of a parent that has not been seen itself."""
        return [self._named[child][0] for child in self._below(name)]

    def child_count(self, name: str) -> int:
        return len(self._below(name))

    def shapes_below(self, name: str) -> Iterable[Shape]:
        """The shapes of its children, each once and in no order."""
        return self._below(name).shapes

    def min_below(self, name: str, but_for: str = "") -> Amounts:
        """The sum of ``min`` of its children, without the one named ``but_for``."""
        known = self._child(name, but_for)
        return less(self._below(name).min, exact(known.min) if known is not None else {})

    def guaranteed_below(self, name: str, but_for: str = "") -> Amounts:
        """The sum of what its children are guaranteed, without the one named ``but_for``."""
        known = self._child(name, but_for)
        return less(self._below(name).guaranteed, exact(known.guaranteed) if known is not None else {})

    def ancestors(self, quota: Quota) -> Iterator[Quota]:
        """From its parent up, without the root; ends where a parent is unknown, or where parents form a cycle."""
        seen = {quota.name}
        parent = self.get(quota.parent)
        while parent is not None and parent.name != ROOT_QUOTA and parent.name not in seen:
            yield parent
            seen.add(parent.name)
            parent = self.get(parent.parent)

    def claimant(self, namespace: str) -> Quota | None:
        """The quota that claims the namespace by an annotation."""
        claims = self._claims.get(namespace)
        return claims[0] if claims else None

    def hierarchy(self) -> dict[str, list[str]]:
        """The names of the children of every quota, of the root, and of parents that have not been seen."""
        names = {ROOT_QUOTA, *self._named, *self._children}
        return {name: list(self._below(name)) for name in sorted(names)}

    def _below(self, name: str) -> Children:
        return self._children.get(name, _NONE)

    def _child(self, parent: str, name: str) -> Quota | None:
        known = self.get(name)
        return known if known is not None and known.parent == parent else None

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
            self._children.setdefault(after.parent, Children()).add(after)
            for namespace in dict.fromkeys(after.namespaces):
                insort(self._claims.setdefault(namespace, []), after, key=_rank)

    def _unlink(self, quota: Quota) -> None:
        children = self._children[quota.parent]
        children.remove(quota)
        if not children:
            del self._children[quota.parent]
        for namespace in dict.fromkeys(quota.namespaces):
            claims = self._claims[namespace]
            claims.remove(quota)
            if not claims:
                del self._claims[namespace]


def _rank(quota: Quota) -> tuple[datetime, str]:
    return quota.rank
