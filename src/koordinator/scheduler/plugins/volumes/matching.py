"""Which volume that exists already a claim gets on a node (component-helpers, FindMatchingVolume).

The smallest that is large enough and has all that the claim asks for, unless one is kept for the claim: then that one
or none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice

import numpy as np

from koordinator.api.node import Node
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim
from koordinator.model.label_selector import EVERYTHING, SelectorError, compile_selector
from koordinator.scheduler.engine.columns import Mask, Rows
from koordinator.scheduler.engine.framework import PluginError
from koordinator.scheduler.plugins.volumes.index import VolumeIndex
from koordinator.scheduler.plugins.volumes.node_tests import HOST_NAME, NodeTest, volume_predicate
from koordinator.scheduler.plugins.volumes.volume_lists import (
    STORAGE,
    Candidate,
    VolumeLists,
    affinity_key,
    affinity_of,
    class_of_claim,
    class_of_volume,
    hosts_of_volume,
    size_of,
)

_FILESYSTEM = "Filesystem"


class ClaimNeeds:
    """What the claim asks of a volume, wherever that may be. Raises PluginError for a claim that cannot be read."""

    def __init__(self, claim: PersistentVolumeClaim) -> None:
        requested = claim.spec.resources.requests.get(STORAGE)
        self.size = requested.nanos if requested is not None else 0
        self.class_name = class_of_claim(claim)
        self._suits = _suits(claim)

    def first(self, candidates: Sequence[Candidate], taken: Collection[str] = ()) -> Candidate | None:
        """The smallest of free volumes that suits and is not ``taken``."""
        start = bisect_left(candidates, self.size, key=lambda candidate: candidate.size)
        for candidate in islice(candidates, start, None):
            if candidate.name not in taken and self._suits(candidate.volume):
                return candidate
        return None

    def offers(self, lists: VolumeLists) -> tuple[bytes, ...]:
        """The affinities with which there is a free volume for the claim that is not tied to hosts."""
        free = lists.free(self.class_name)
        return tuple(sorted(key for key, candidates in free.items() if self.first(candidates) is not None))


class ClaimSearch:
    """The search for a volume for one claim. Good as long as the claim's key stays the same."""

    def __init__(self, index: VolumeIndex, claim: PersistentVolumeClaim) -> None:
        self.claim = claim
        self._lists = index.lists
        self._needs = ClaimNeeds(claim)
        self.size = self._needs.size
        kept = index.lists.of_claim(claim.metadata.key).values()
        self._kept = [(volume, affinity_test(index, volume)) for volume in self._large_enough(kept)]
        self._anywhere = self._tests(index)

    @property
    def is_open(self) -> bool:
        """Whether there may be a volume on any node."""
        return bool(self._kept or self._anywhere or self._depends_on_host)

    @property
    def _depends_on_host(self) -> bool:
        return self._lists.any_on_hosts(self._needs.class_name)

    def find(self, row: int, node: Node, taken: Collection[str]) -> PersistentVolume | None:
        """The volume for the claim if the pod goes to ``row``; not one of ``taken``."""
        for volume, test in self._kept:
            if volume.metadata.name not in taken:
                return volume if test is None or test.ask_one(row) else None
        found = [self._on_host(node, taken)]
        free = self._lists.free(self._needs.class_name)
        for key, test in self._anywhere:
            if test is None or test.ask_one(row):
                found.append(self._needs.first(free.get(key, ()), taken))
        best = min((each for each in found if each is not None), default=None)
        return best.volume if best is not None else None

    def found_on(self, rows: Rows) -> Mask | None:
        """Where there is a volume for the claim, if it is the only one; None when each row has to be looked at."""
        if self._kept or self._depends_on_host:
            return None
        found = np.zeros(rows.shape[0], dtype=np.bool_)
        for _, test in self._anywhere:
            found |= test.ask(rows) if test is not None else True
        return found

    def _on_host(self, node: Node, taken: Collection[str]) -> Candidate | None:
        host = node.metadata.labels.get(HOST_NAME)
        if host is None:
            return None
        on_host = self._lists.on_host(self._needs.class_name, host)
        return self._needs.first([each for each in on_host if each.passes is None or each.passes(node)], taken)

    def _large_enough(self, kept: Iterable[PersistentVolume]) -> list[PersistentVolume]:
        """Those of the volumes that belong to this very claim and are what it needs, the smallest first."""
        fit = [volume for volume in kept if self._is_mine(volume) and size_of(volume) >= self.size]
        return sorted(fit, key=lambda volume: (size_of(volume), volume.metadata.name))

    def _is_mine(self, volume: PersistentVolume) -> bool:
        reference, class_name = volume.spec.claim_ref, self._needs.class_name
        if reference is None or class_of_volume(volume) != class_name or volume.metadata.deletion_timestamp:
            return False
        return reference.uid in ("", self.claim.metadata.uid) and same_kind(self.claim, volume)

    def _tests(self, index: VolumeIndex) -> list[tuple[bytes, NodeTest | None]]:
        """The affinities with which there is a volume, as questions."""
        free = index.lists.free(self._needs.class_name)
        return [(key, affinity_test(index, free[key][0].volume)) for key in self._needs.offers(index.lists)]


def affinity_test(index: VolumeIndex, volume: PersistentVolume) -> NodeTest | None:
    """The question whether a node may use the volume; None when every node may."""
    required = affinity_of(volume)
    if required is None:
        return None
    return index.tests.get(
        ("volume", affinity_key(volume)), lambda: volume_predicate(required), hosts_of_volume(volume)
    )


def same_kind(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Whether both are file systems or both raw blocks, and of the same attributes class."""
    if (claim.spec.volume_mode or _FILESYSTEM) != (volume.spec.volume_mode or _FILESYSTEM):
        return False
    return (claim.spec.volume_attributes_class_name or "") == (volume.spec.volume_attributes_class_name or "")


def _suits(claim: PersistentVolumeClaim) -> Callable[[PersistentVolume], bool]:
    """All that the claim asks of a free volume but for its size and place. Raises PluginError."""
    modes = frozenset(claim.spec.access_modes)
    try:
        selector = compile_selector(claim.spec.selector) if claim.spec.selector is not None else EVERYTHING
    except SelectorError as error:
        key = claim.metadata.key
        raise PluginError(f"error creating internal label selector for claim: {key}: {error}") from error

    def suits(volume: PersistentVolume) -> bool:
        has_modes = modes.issubset(volume.spec.access_modes)
        return has_modes and same_kind(claim, volume) and selector.matches(volume.metadata.labels)

    return suits
