"""The claims of a pod as VolumeBinding sorts them: bound, to be bound where the pod goes, or an obstacle."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

import msgspec

from koordinator.api.volume import (
    BIND_COMPLETED,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from koordinator.scheduler.engine.framework import PluginError
from koordinator.scheduler.plugins.volumes.index import VolumeIndex
from koordinator.scheduler.plugins.volumes.matching import ClaimNeeds
from koordinator.scheduler.plugins.volumes.migration import TranslationError, plugin_of, translate, translated_affinity
from koordinator.scheduler.plugins.volumes.pod_volumes import PodVolumes
from koordinator.scheduler.plugins.volumes.volume_lists import STORAGE, affinity_of, class_of_claim

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
    """What is said about a class that does not tell when its volumes are bound."""
    return f'VolumeBindingMode not set for StorageClass "{storage_class.metadata.name}"'


def key_of(index: VolumeIndex, claims: PodClaims | str) -> Hashable:
    """Equal for claims that every node is evaluated by in the same way, now. Raises PluginError."""
    if isinstance(claims, str):
        return claims
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
        ClaimNeeds(claim).offers(index.lists) if alone else index.free_version(class_name),
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
