"""The claims of a pod as VolumeBinding sorts them: bound, to be bound where the pod goes, or an obstacle."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from koordinator.api.node import Node
from koordinator.api.volume import (
    BIND_COMPLETED,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    class_of_claim,
    class_of_volume,
)
from koordinator.model.label_selector import EVERYTHING, SelectorError, compile_selector
from koordinator.scheduler.engine.columns import Mask, Rows
from koordinator.scheduler.engine.framework import PluginError
from koordinator.scheduler.plugins.node_labels import HOST_NAME, NodeResults
from koordinator.scheduler.plugins.volumes.index import VolumeIndex
from koordinator.scheduler.plugins.volumes.migration import TranslationError, plugin_of, translate, translated_affinity
from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes
from koordinator.scheduler.plugins.volumes.volume_lists import (
    STORAGE,
    Candidate,
    affinity_key,
    affinity_of,
    hosts_of_volume,
    size_of,
    volume_predicate,
)

_FILESYSTEM = "Filesystem"


class ClaimSearch:
    """The search for a volume for one claim. Good as long as the claim's key stays the same. Raises PluginError for an
    invalid claim."""

    def __init__(self, index: VolumeIndex, claim: PersistentVolumeClaim) -> None:
        self.claim = claim
        self._index = index
        self._lists = index.lists
        requested = claim.spec.resources.requests.get(STORAGE)
        self.size = requested.nanos if requested is not None else 0
        self._class_name = class_of_claim(claim)
        self._suits = _suits(claim)

    @cached_property
    def offers(self) -> tuple[bytes, ...]:
        """The affinities with which there is a free volume for the claim that is not tied to hosts."""
        free = self._lists.free(self._class_name)
        return tuple(sorted(key for key, candidates in free.items() if self._first(candidates) is not None))

    @cached_property
    def _kept(self) -> list[tuple[PersistentVolume, NodeResults | None]]:
        """The volumes that belong to this very claim and are what it needs, the smallest first, with their tests."""
        volumes = self._lists.of_claim(self.claim.metadata.key).values()
        fit = [volume for volume in volumes if self._is_mine(volume) and size_of(volume) >= self.size]
        ordered = sorted(fit, key=lambda volume: (size_of(volume), volume.metadata.name))
        return [(volume, affinity_test(self._index, volume)) for volume in ordered]

    @cached_property
    def _anywhere(self) -> list[tuple[bytes, NodeResults | None]]:
        """The ``offers``, as tests."""
        free = self._lists.free(self._class_name)
        return [(key, affinity_test(self._index, free[key][0].volume)) for key in self.offers]

    @property
    def is_open(self) -> bool:
        """Whether there may be a volume on any node."""
        return bool(self._kept or self._anywhere or self._depends_on_host)

    @property
    def _depends_on_host(self) -> bool:
        return self._lists.any_on_hosts(self._class_name)

    def find(self, row: int, node: Node, taken: Collection[str]) -> PersistentVolume | None:
        """The volume for the claim if the pod goes to ``row``; not one of ``taken``."""
        for volume, test in self._kept:
            if volume.metadata.name not in taken:
                return volume if test is None or test.of(row) else None
        found = [self._on_host(node, taken)]
        free = self._lists.free(self._class_name)
        for key, test in self._anywhere:
            if test is None or test.of(row):
                found.append(self._first(free.get(key, ()), taken))
        best = min((each for each in found if each is not None), default=None)
        return best.volume if best is not None else None

    def found_on(self, rows: Rows) -> Mask | None:
        """Where there is a volume for the claim, if it is the only one; None when each row has to be looked at."""
        if self._kept or self._depends_on_host:
            return None
        found = np.zeros(rows.shape[0], dtype=np.bool_)
        for _, test in self._anywhere:
            found |= test.passing(rows) if test is not None else True
        return found

    def _on_host(self, node: Node, taken: Collection[str]) -> Candidate | None:
        host = node.metadata.labels.get(HOST_NAME)
        if host is None:
            return None
        on_host = self._lists.on_host(self._class_name, host)
        return self._first([each for each in on_host if each.passes is None or each.passes(node)], taken)

    def _first(self, candidates: Sequence[Candidate], taken: Collection[str] = ()) -> Candidate | None:
        """The smallest of free volumes that suits and is not ``taken``."""
        start = bisect_left(candidates, self.size, key=lambda candidate: candidate.size)
        for candidate in islice(candidates, start, None):
            if candidate.name not in taken and self._suits(candidate.volume):
                return candidate
        return None

    def _is_mine(self, volume: PersistentVolume) -> bool:
        reference = volume.spec.claim_ref
        if reference is None or class_of_volume(volume) != self._class_name or volume.metadata.deletion_timestamp:
            return False
        return reference.uid in ("", self.claim.metadata.uid) and same_kind(self.claim, volume)


def affinity_test(index: VolumeIndex, volume: PersistentVolume) -> NodeResults | None:
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
    """All requirements of the claim for a free volume but for its size and place. Raises PluginError."""
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


_UNBOUND_IMMEDIATE: Final = "pod has unbound immediate PersistentVolumeClaims"


@dataclass(frozen=True, slots=True)
class PodClaims:
    """Claims that can be decided about, as assumed, in the order of the pod's volumes."""

    bound: tuple[PersistentVolume | None, ...] = ()
    """The volumes of bound claims; None for one that is not there."""
    unbound: tuple[PersistentVolumeClaim, ...] = ()
    """Claims that wait for their first consumer."""


def read_claims(index: VolumeIndex, volumes: PodVolumes) -> PodClaims | str:
    """The pod's claims, or why it cannot be scheduled before something happens to them. Raises PluginError."""
    obstacle = _obstacle(index, volumes)
    if obstacle is not None:
        return obstacle
    bound: list[PersistentVolume | None] = []
    unbound: dict[str, PersistentVolumeClaim] = {}
    immediate = False
    for use in volumes.claims:
        claim = index.claims.get(use.key)
        assert claim is not None
        if is_fully_bound(claim):
            bound.append(index.volumes.get(claim.spec.volume_name))
        elif _waits_for_consumer(index, claim) and not claim.spec.volume_name:
            unbound[use.key] = claim
        else:
            immediate = True
    return _UNBOUND_IMMEDIATE if immediate else PodClaims(tuple(bound), tuple(unbound.values()))


def _obstacle(index: VolumeIndex, volumes: PodVolumes) -> str | None:
    for use in volumes.claims:
        claim = index.claims.stored(use.key)
        if claim is None:
            if use.ephemeral:
                return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.claim}"'
            return claim_not_found(use.claim)
        if claim.status.phase == "Lost":
            name = claim.spec.volume_name
            return f'persistentvolumeclaim "{use.claim}" bound to non-existent persistentvolume "{name}"'
        if claim.metadata.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{use.claim}" is being deleted'
        if use.ephemeral and not volumes.owns(claim):
            return volumes.disowned(claim)
    return None


def claim_not_found(name: str) -> str:
    """What is said about a claim that is not there."""
    return f'persistentvolumeclaim "{name}" not found'


def is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether the volume controller has finished with the claim."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def _waits_for_consumer(index: VolumeIndex, claim: PersistentVolumeClaim) -> bool:
    storage_class = index.storage_class(class_of_claim(claim))
    if storage_class is None:
        return False
    if storage_class.volume_binding_mode is None:
        raise PluginError(mode_not_set(storage_class))
    return storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def mode_not_set(storage_class: StorageClass) -> str:
    """The message for a class without a volume binding mode."""
    return f'VolumeBindingMode not set for StorageClass "{storage_class.metadata.name}"'


def key_of(index: VolumeIndex, claims: PodClaims) -> Hashable:
    """Equal for claims that every node is evaluated by in the same way, now. Raises PluginError."""
    bound = tuple([bound_key(volume) if volume is not None else None for volume in claims.bound])
    return bound, tuple([_unbound_key(index, claim, alone=len(claims.unbound) == 1) for claim in claims.unbound])


def bound_key(volume: PersistentVolume) -> tuple[bytes, str, bytes]:
    """Where the volume can be used: its affinity, the in-tree plugin it is of, and what its CSI driver calls the same.

    Raises PluginError.
    """
    required = msgspec.json.encode(affinity_of(volume))
    plugin = plugin_of(volume.spec)
    if plugin is None:
        return required, "", b""
    try:
        translate(volume.spec, volume.metadata.labels)
        return required, plugin, msgspec.json.encode(translated_affinity(plugin, volume))
    except TranslationError as error:
        raise PluginError(f"could not translate pv: {error}") from error


def _unbound_key(index: VolumeIndex, claim: PersistentVolumeClaim, *, alone: bool) -> Hashable:
    """Claims of one pod must not be given the same volume, so only for a claim that is alone it is enough to know where
    there is any."""
    spec, class_name = claim.spec, class_of_claim(claim)
    requested = spec.resources.requests.get(STORAGE)
    kept = index.lists.of_claim(claim.metadata.key)
    return (
        class_name,
        index.class_version(class_name),
        ClaimSearch(index, claim).offers if alone else index.free_version(class_name),
        requested.nanos if requested is not None else None,
        tuple(spec.access_modes),
        spec.volume_mode,
        spec.volume_attributes_class_name,
        msgspec.json.encode(spec.selector),
        claim.metadata.annotations.get(SELECTED_NODE),
        claim.metadata.uid if kept else "",
        tuple(
            sorted(
                (name, volume.metadata.resource_version, index.volumes.is_assumed(name))
                for name, volume in kept.items()
            )
        ),
    )
