"""What becomes of a claim: bound to a volume, provisioned, waiting, or lost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from koordinator.api.volume import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    class_of_claim,
)
from koordinator.cluster.controllers.persistent_volume.matching import best_match, is_bound_to, mismatch

PENDING: Final = "Pending"
LOST: Final = "Lost"
_IN_TREE: Final = "kubernetes.io/"


@dataclass(frozen=True, slots=True)
class Notice:
    """An event to be recorded."""

    type: Literal["Normal", "Warning"]
    reason: str
    note: str


@dataclass(frozen=True, slots=True)
class ClaimState:
    """A claim and what it depends on."""

    claim: PersistentVolumeClaim
    candidates: Sequence[PersistentVolume]
    """The volumes that may suit it: those of its class, and those that are kept for it."""
    named: PersistentVolume | None
    """The volume that ``spec.volumeName`` names; None if there is none."""
    storage_class: StorageClass | None
    """None if it names none, or one that does not exist."""
    default_class: str = ""
    waiting_pods: Sequence[str] = ()
    """The names of pods with this claim that are not scheduled yet."""


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """What is to be written, in this order. Nothing else changes."""

    storage_class: str = ""
    """The default class, which the claim gets."""
    bind: PersistentVolume | None = None
    provisioner: str = ""
    """Who is asked to make a volume."""
    phase: str = ""
    notice: Notice | None = None
    """With the phase Lost, it is recorded only when the phase changes."""


def plan_claim(state: ClaimState) -> ClaimPlan:
    """Decide on a claim."""
    if BIND_COMPLETED in state.claim.metadata.annotations:
        return _bound(state)
    return _named(state) if state.claim.spec.volume_name else _unbound(state)


def is_delayed(storage_class: StorageClass | None) -> bool:
    """Whether claims of the class wait for the scheduler to choose a node."""
    return storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def _unbound(state: ClaimState) -> ClaimPlan:
    claim = state.claim
    is_waiting = is_delayed(state.storage_class)
    volume = best_match(claim, state.candidates, only_kept=is_waiting)
    if volume is not None:
        return ClaimPlan(bind=volume)
    class_name = class_of_claim(claim)
    if not class_name and claim.spec.storage_class_name is None and state.default_class:
        return ClaimPlan(storage_class=state.default_class)
    if is_waiting and SELECTED_NODE not in claim.metadata.annotations:
        return ClaimPlan(phase=PENDING, notice=_first_consumer(state.waiting_pods))
    if class_name:
        return _provisioned(state, class_name)
    text = "no persistent volumes available for this claim and no storage class is set"
    return ClaimPlan(phase=PENDING, notice=Notice("Normal", "FailedBinding", text))


def _provisioned(state: ClaimState, class_name: str) -> ClaimPlan:
    if state.storage_class is None:
        text = f'storageclass.storage.k8s.io "{class_name}" not found'
        return ClaimPlan(phase=PENDING, notice=Notice("Warning", "ProvisioningFailed", text))
    provisioner = state.storage_class.provisioner
    if provisioner.startswith(_IN_TREE):
        text = f"no volume plugin matched name: {provisioner}"
        return ClaimPlan(phase=PENDING, notice=Notice("Warning", "ProvisioningFailed", text))
    text = (
        f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
        "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
        "correctly registered."
    )
    return ClaimPlan(provisioner=provisioner, phase=PENDING, notice=Notice("Normal", "ExternalProvisioning", text))


def _first_consumer(pods: Sequence[str]) -> Notice:
    if not pods:
        return Notice("Normal", "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
    what = f"pod {pods[0]}" if len(pods) == 1 else f"pods {','.join(pods)}"
    return Notice("Normal", "WaitForPodScheduled", f"waiting for {what} to be scheduled")


def _named(state: ClaimState) -> ClaimPlan:
    claim, volume = state.claim, state.named
    if volume is None:
        return ClaimPlan(phase=PENDING)
    if is_bound_to(volume, claim):
        return ClaimPlan(bind=volume)
    if volume.spec.claim_ref is None:
        why = mismatch(claim, volume)
        if not why:
            return ClaimPlan(bind=volume)
        text = f'Cannot bind to requested volume "{volume.metadata.name}": {why}'
        return ClaimPlan(phase=PENDING, notice=Notice("Warning", "VolumeMismatch", text))
    if BOUND_BY_CONTROLLER in claim.metadata.annotations:
        # Somebody has removed the annotation of a bound claim.
        return ClaimPlan()
    text = f'volume "{volume.metadata.name}" already bound to a different claim.'
    return ClaimPlan(phase=PENDING, notice=Notice("Warning", "FailedBinding", text))


def _bound(state: ClaimState) -> ClaimPlan:
    claim, volume = state.claim, state.named
    if not claim.spec.volume_name:
        text = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
        return ClaimPlan(phase=LOST, notice=Notice("Warning", "ClaimLost", text))
    if volume is None:
        text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        return ClaimPlan(phase=LOST, notice=Notice("Warning", "ClaimLost", text))
    if volume.spec.claim_ref is None or volume.spec.claim_ref.uid == claim.metadata.uid:
        return ClaimPlan(bind=volume)
    text = "Two claims are bound to the same volume, this one is bound incorrectly"
    return ClaimPlan(phase=LOST, notice=Notice("Warning", "ClaimMisbound", text))
