"""A store that forgets with the process: for tests and for throw-away clusters."""

from __future__ import annotations

from collections.abc import Sequence

from koordinator.cluster.storage.hub import HistoryLimits
from koordinator.cluster.storage.indexed import IndexedStorage
from koordinator.cluster.storage.interface import Change


class MemoryStorage(IndexedStorage):
    """``interface.Storage`` without a disk."""

    def __init__(self, limits: HistoryLimits | None = None) -> None:
        super().__init__(limits or HistoryLimits())

    def _persist(self, changes: Sequence[Change]) -> None:
        """What is in memory is as durable as this store gets."""

    def health(self) -> str:
        return ""

    def try_again(self) -> None:
        """Nothing ever fails here."""
