"""The writes to an owner's children that the cache does not show yet: until it does, the owner's controller must not
count the children and decide on more writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api.meta import Object
from koordinator.base.clock import Clock
from koordinator.kube.informer import Informer
from koordinator.kube.object_cache import is_older, newest

_PATIENCE: Final = 300.0
"""Seconds after the last write, as in Kubernetes; then the expectation is void."""


@dataclass(slots=True)
class _Expected:
    moment: float
    version: str = "0"
    deleted: dict[str, str] = field(default_factory=dict)
    """Key -> UID."""


class ChildExpectations:
    """By the UID of the owner. ``children`` must watch all objects of the kind: what has been seen of them is known by
    resourceVersion."""

    def __init__(self, children: Informer[Any], clock: Clock) -> None:
        self._children = children
        self._clock = clock
        self._expected: dict[str, _Expected] = {}

    def written(self, owner_uid: str, response: Object) -> None:
        """Record ``response``, the server's response to a create or a patch of a child."""
        expected = self._renewed(owner_uid)
        expected.version = newest(expected.version, response.metadata.resource_version)

    def deleted(self, owner_uid: str, child: Object) -> None:
        """Record that the server has accepted the deletion of ``child``."""
        self._renewed(owner_uid).deleted[child.metadata.key] = child.metadata.uid

    def are_satisfied(self, owner_uid: str) -> bool:
        """Whether the cache shows all that was recorded, or has not for minutes."""
        expected = self._expected.get(owner_uid)
        if expected is None:
            return True
        if self._clock.monotonic() - expected.moment < _PATIENCE and not self._is_seen(expected):
            return False
        del self._expected[owner_uid]
        return True

    def is_deleted(self, owner_uid: str, child: Object) -> bool:
        """Whether the deletion of ``child`` was recorded, and the cache may not show it yet."""
        expected = self._expected.get(owner_uid)
        return expected is not None and expected.deleted.get(child.metadata.key) == child.metadata.uid

    def forget(self, owner_uid: str) -> None:
        """Remove the expectations of an owner that is gone."""
        self._expected.pop(owner_uid, None)

    def _renewed(self, owner_uid: str) -> _Expected:
        expected = self._expected.setdefault(owner_uid, _Expected(0.0))
        expected.moment = self._clock.monotonic()
        return expected

    def _is_seen(self, expected: _Expected) -> bool:
        if is_older(self._children.resource_version, expected.version):
            return False
        return not any(self._is_there(key, uid) for key, uid in expected.deleted.items())

    def _is_there(self, key: str, uid: str) -> bool:
        child = self._children.get(key)
        return child is not None and child.metadata.uid == uid and child.metadata.deletion_timestamp is None
