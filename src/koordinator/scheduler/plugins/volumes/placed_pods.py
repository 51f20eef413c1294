"""Pods with volumes that are on nodes: which row has which, and who uses a claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes

_NO_PODS: Final[Mapping[str, PodVolumes]] = MappingProxyType({})
_NO_USERS: Final[Mapping[str, int]] = MappingProxyType({})


class PlacedPods:
    """Assumed pods included. ``add`` and ``remove`` may be told the same thing again."""

    def __init__(self) -> None:
        self._on_row: dict[int, dict[str, PodVolumes]] = {}
        self._users: dict[str, dict[str, int]] = {}
        self.in_tree = 0
        """How many of the pods name a volume of an in-tree plugin themselves."""

    def add(self, row: int, volumes: PodVolumes) -> bool:
        """The pod is on ``row``; returns whether that is news."""
        pods = self._on_row.setdefault(row, {})
        if volumes.uid in pods:
            return False
        pods[volumes.uid] = volumes
        self.in_tree += bool(volumes.in_tree)
        for use in volumes.claims:
            self._users.setdefault(use.key, {})[volumes.uid] = row
        return True

    def remove(self, row: int, uid: str) -> bool:
        """The pod is not on ``row`` any more; returns whether it was."""
        pods = self._on_row.get(row)
        volumes = pods.pop(uid, None) if pods is not None else None
        if volumes is None:
            return False
        if not pods:
            del self._on_row[row]
        self.in_tree -= bool(volumes.in_tree)
        for key in {use.key for use in volumes.claims}:
            users = self._users[key]
            del users[uid]
            if not users:
                del self._users[key]
        return True

    def remove_row(self, row: int) -> bool:
        """The row is free; returns whether there were pods with volumes."""
        uids = list(self._on_row.get(row, ()))
        for uid in uids:
            self.remove(row, uid)
        return bool(uids)

    def on_row(self, row: int) -> Mapping[str, PodVolumes]:
        """By uid."""
        return self._on_row.get(row, _NO_PODS)

    def users(self, key: str) -> Mapping[str, int]:
        """uid -> row of the pods that use a claim."""
        return self._users.get(key, _NO_USERS)

    def rows(self) -> Iterable[int]:
        """All rows that have such pods."""
        return tuple(self._on_row)
