"""The profiles that match an object, applied one after the other."""

from __future__ import annotations

from collections.abc import Callable

from koordinator.api.document import Document
from koordinator.manager.webhook.colocation_profile.catalogue import Matches
from koordinator.manager.webhook.colocation_profile.changes import apply_patch, apply_profile
from koordinator.manager.webhook.colocation_profile.cluster import ColocationCluster
from koordinator.manager.webhook.colocation_profile.probability import ALWAYS

Draw = Callable[[], int]
"""A random whole number from 0 to 99."""


class ProfileEngine:
    """For objects of one type. ``pod_spec`` finds the part of such an object that schedules pods, None without one."""

    def __init__(
        self,
        cluster: ColocationCluster,
        draw: Draw,
        pod_spec: Callable[[Document], Document | None],
    ) -> None:
        self._cluster = cluster
        self._draw = draw
        self._pod_spec = pod_spec

    def apply(self, matches: Matches, target: Document) -> Document:
        """``target`` as the matching profiles want it, changed in place. Raises ProfileError."""
        for profile in matches.profiles:
            if profile.percent < ALWAYS and self._draw() >= profile.percent:
                continue
            apply_profile(profile, target, self._pod_spec(target), self._cluster)
            target = apply_patch(profile, target)
        return target
