"""How a plugin wants one node to be seen: with pods or requests that are not there, or without some that are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from koordinator.scheduler.engine.pod_info import PodInfo


class Change(Protocol):
    """A hypothetical change of one node. ``apply`` and ``revert`` alternate; ``revert`` is also called after a failed
    ``apply``."""

    def apply(self) -> None: ...
    def revert(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What a simulation adds to the requested resources of a node (negative: frees), see ``Journal.adjust``."""

    amounts: Mapping[str, int] = field(default_factory=dict)
    """By name of the resource; ``pods`` counts pods."""
    non_zero: tuple[int, int] = (0, 0)
    removed: tuple[PodInfo, ...] = ()
    """Pods of the node that count as removed: with what they request, their ports and their allocations."""
    added: tuple[PodInfo, ...] = ()
    """Pods that count as being on the node."""
    changes: tuple[Change, ...] = ()
    """Further changes of the row, applied before pods are removed and added, and reverted after these are restored."""
