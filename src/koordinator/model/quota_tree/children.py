"""The quotas below one parent, with their sums, kept as they come and go.

A change of one quota is judged by what its brothers have together. Adding that up anew would make an admission as dear
as there are brothers; thousands below one parent are not rare where a quota is a team or a queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from koordinator.api.pod import ResourceList
from koordinator.model.quota_tree.amounts import Amounts
from koordinator.model.quota_tree.quota import Quota, Shape


class Children:
    """Sums leave out names whose amounts add up to nothing."""

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
        """One that is not among them yet."""
        self._names.add(quota.name)
        self._shapes[quota.shape] += 1
        _add(self.min, quota.min, 1)
        _add(self.guaranteed, quota.guaranteed, 1)

    def remove(self, quota: Quota) -> None:
        """One that is among them, as it was added."""
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
