"""The interface of changes of a cluster, each of which is made as users and programs make it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from koordinator.base.errors import KoordinatorError
from koordinator.simulate.simulated_cluster import SimulatedCluster


class ChangeError(KoordinatorError):
    """A change that cannot be made on this snapshot; the text names the object and the error."""


@dataclass(slots=True)
class Remarks:
    """The record of how a change was made."""

    done: str = ""
    """What was done, as a sentence without its full stop: ``node a is drained``."""
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    """Members of the result that only this kind of change has."""
    blocked: list[str] = field(default_factory=list)
    """What could not be done."""


class Change(ABC):
    """One change. ``apply`` makes it and lets the cluster settle as often as it takes."""

    @abstractmethod
    async def apply(self, cluster: SimulatedCluster, remarks: Remarks) -> None:
        """Make the change. Raises ChangeError, and ApiError for what an API server would refuse."""
