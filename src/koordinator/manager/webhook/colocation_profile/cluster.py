"""What profiles need to know of the cluster, read from memory: an admission never waits for the API server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.core import PriorityClass
from koordinator.base.errors import KoordinatorError


class ProfileError(KoordinatorError):
    """A profile that is meant for an object cannot be applied to it; the object is refused."""


class ColocationCluster(Protocol):
    """Answers from what is known at the moment of the call."""

    def colocation_profiles(self) -> Iterable[ClusterColocationProfile]:
        """All of them, in any order. One that has not changed is the same object as before."""
        ...

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """None for a namespace that is not known (yet)."""
        ...

    def priority_class(self, name: str) -> PriorityClass | None: ...
