"""The order of resourceVersions, and the memory of what was deleted at which of them.

Kubernetes calls resourceVersions opaque, yet every server that we meet (and, since 1.35, the API's own contract) writes
decimal numbers that grow; what is not decimal has no order here and is trusted to come in order.
"""

from __future__ import annotations

from collections import OrderedDict


def is_older(version: str, than: str) -> bool:
    """Whether ``version`` is certainly older than ``than``."""
    if version == than:
        return False
    try:
        return int(version) < int(than)
    except ValueError:
        return False


def newest(one: str, other: str) -> str:
    """The newer of two; ``other`` where they have no order."""
    return one if is_older(other, one) else other


class Tombstones:
    """The latest deletions by uid, so that a late or repeated event cannot bring a deleted object back.

    Bounded: only events that are still in flight can be late, and those are few.
    """

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._versions: OrderedDict[str, str] = OrderedDict()

    def add(self, uid: str, version: str) -> None:
        """Remember that the object with ``uid`` was gone at ``version``."""
        if not uid:
            return
        self._versions[uid] = newest(self._versions.pop(uid, version), version)
        if len(self._versions) > self._capacity:
            self._versions.popitem(last=False)

    def covers(self, uid: str, version: str) -> bool:
        """Whether this version of the object was already gone."""
        gone = self._versions.get(uid) if self._versions else None
        return gone is not None and (version == gone or is_older(version, gone))

    def discard(self, uid: str) -> None:
        """Forget a deletion: the object is back (it left a selector and entered it again)."""
        if self._versions:
            self._versions.pop(uid, None)

    def clear(self) -> None:
        self._versions.clear()
