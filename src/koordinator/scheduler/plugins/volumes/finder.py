"""Node by node: whether a pod's claims can be had there, and by which volumes (volumebinding, FindPodVolumes)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from koordinator.api.pod import NodeSelector
from koordinator.api.volume import SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from koordinator.scheduler.engine.columns import Ints, Mask, Rows
from koordinator.scheduler.plugins.volumes.claims import PodClaims, bound_key
from koordinator.scheduler.plugins.volumes.index import VolumeIndex
from koordinator.scheduler.plugins.volumes.matching import ClaimSearch, affinity_test
from koordinator.scheduler.plugins.volumes.node_tests import NodeTest, hosts_of, volume_predicate
from koordinator.scheduler.plugins.volumes.provisioning import Provisioning

WRONG_NODE: Final = 1
NOTHING_TO_BIND: Final = 2
NO_CAPACITY: Final = 4
VOLUME_MISSING: Final = 8
"""Codes are sums of these."""
Binding = tuple[PersistentVolume, PersistentVolumeClaim]


@dataclass(slots=True)
class Finding:
    """What goes to the pod's claims on one node, if ``code`` is zero."""

    code: int = 0
    bindings: list[Binding] = field(default_factory=list)
    provisions: list[PersistentVolumeClaim] = field(default_factory=list)


class BoundVolume:
    """Where a bound volume can be used; what is written for an in-tree plugin reads otherwise where a driver does its
    work."""

    def __init__(self, index: VolumeIndex, volume: PersistentVolume) -> None:
        self._index = index
        self._test = affinity_test(index, volume)
        _, self._plugin, translated = bound_key(volume)
        self._translated = _translated_test(index, translated) if self._plugin else None

    def ask(self, rows: Rows) -> Mask:
        """Whether it can be used on each of ``rows``."""
        passed = self._test.ask(rows) if self._test is not None else np.ones(rows.shape[0], dtype=np.bool_)
        if not self._plugin or self._test is self._translated:
            return passed
        migrated = np.array([self._plugin in self._index.migrated(row) for row in rows.tolist()], dtype=np.bool_)
        if migrated.any():
            passed[migrated] = self._translated.ask(rows[migrated]) if self._translated is not None else True
        return passed


def _translated_test(index: VolumeIndex, encoded: bytes) -> NodeTest | None:
    required = msgspec.json.decode(encoded, type=NodeSelector | None)
    if required is None:
        return None
    return index.tests.get(("volume", encoded), lambda: volume_predicate(required), hosts_of(required))


class Finder:
    """For the claims of one pod, or of all pods with claims like these."""

    def __init__(self, index: VolumeIndex, claims: PodClaims) -> None:
        self._columns = index.view.columns
        self._bound = [BoundVolume(index, volume) if volume is not None else None for volume in claims.bound]
        self._selected = {node for claim in claims.unbound if (node := selected_node(claim)) is not None}
        to_match = [claim for claim in claims.unbound if selected_node(claim) is None]
        searches = [ClaimSearch(index, claim) for claim in to_match]
        self._searches = sorted(searches, key=lambda search: search.size)
        self._to_provision = [claim for claim in claims.unbound if selected_node(claim) is not None]
        self._provisioning = {claim.metadata.key: Provisioning(index, claim) for claim in claims.unbound}

    def codes(self, rows: Rows) -> Ints:
        """The codes of ``rows``."""
        codes = self._bound_codes(rows)
        if not self._provisioning:
            return codes
        for left, places in self._left_on(rows):
            codes[places] |= NOTHING_TO_BIND if left is None else self._provision_codes(left, rows[places])
        return codes

    def find(self, row: int) -> Finding:
        """What the pod's claims get on ``row``."""
        rows = np.array((row,), dtype=np.intp)
        finding = Finding(int(self._bound_codes(rows)[0]))
        left = self._match(row, finding.bindings)
        if left is None:
            finding.code |= NOTHING_TO_BIND
        else:
            finding.provisions = left
            finding.code |= int(self._provision_codes(left, rows)[0])
        return finding

    def _bound_codes(self, rows: Rows) -> Ints:
        """The first bound volume that is missing or out of reach decides."""
        codes = np.zeros(rows.shape[0], dtype=np.int64)
        for volume in self._bound:
            undecided = np.flatnonzero(codes == 0)
            if volume is None:
                codes[undecided] = VOLUME_MISSING
                break
            codes[undecided[~volume.ask(rows[undecided])]] = WRONG_NODE
        return codes

    def _left_on(self, rows: Rows) -> list[tuple[list[PersistentVolumeClaim] | None, Rows]]:
        """The claims that no existing volume is there for, and the places in ``rows`` for which that holds; None where
        claims must go elsewhere."""
        if not self._selected and not any(search.is_open for search in self._searches):
            return [([search.claim for search in self._searches], np.arange(rows.shape[0], dtype=np.intp))]
        if len(self._searches) == 1 and not self._to_provision:
            found = self._searches[0].found_on(rows)
            if found is not None:
                return [([], np.flatnonzero(found)), ([self._searches[0].claim], np.flatnonzero(~found))]
        groups: dict[tuple[str, ...] | None, tuple[list[PersistentVolumeClaim] | None, list[int]]] = {}
        for place, row in enumerate(rows.tolist()):
            left = self._match(row, [])
            key = tuple([claim.metadata.name for claim in left]) if left is not None else None
            groups.setdefault(key, (left, []))[1].append(place)
        return [(left, np.array(places, dtype=np.intp)) for left, places in groups.values()]

    def _match(self, row: int, bindings: list[Binding]) -> list[PersistentVolumeClaim] | None:
        """Find existing volumes, for the smallest claim first; returns the claims that need new ones. None when a claim
        is to be had on another node."""
        node = self._columns.nodes[row]
        if node is None or self._selected - {node.metadata.name}:
            return None
        taken: set[str] = set()
        left = list(self._to_provision)
        for search in self._searches:
            volume = search.find(row, node, taken)
            if volume is None:
                left.append(search.claim)
            else:
                taken.add(volume.metadata.name)
                bindings.append((volume, search.claim))
        return left

    def _provision_codes(self, claims: Sequence[PersistentVolumeClaim], rows: Rows) -> Ints:
        """The first claim for which no volume can be made decides."""
        codes = np.zeros(rows.shape[0], dtype=np.int64)
        for claim in claims:
            provisioning = self._provisioning[claim.metadata.key]
            undecided = np.flatnonzero(codes == 0)
            if not provisioning.possible:
                codes[undecided] = NOTHING_TO_BIND
                break
            if provisioning.allowed is not None:
                codes[undecided[~provisioning.allowed.ask(rows[undecided])]] = NOTHING_TO_BIND
            if provisioning.capacity is not None:
                undecided = np.flatnonzero(codes == 0)
                codes[undecided[~provisioning.capacity.ask(rows[undecided])]] = NO_CAPACITY
        return codes


def selected_node(claim: PersistentVolumeClaim) -> str | None:
    """The node where the claim's volume is being made."""
    return claim.metadata.annotations.get(SELECTED_NODE)
