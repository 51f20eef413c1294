"""Operating-mode pods: real pods that, once they are ready on a node, serve as Reservations for other pods.

Such a pod is converted to the Reservation that it represents, so that matching, fitting and counting handle one kind
only. Its owners are in an annotation, its first owner uses it up, and owners may use the node's capacity too (policy
Aligned).
"""

from __future__ import annotations

from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.codec import DecodeError, decode, decode_or
from koordinator.api.meta import ObjectReference
from koordinator.api.pod import Pod, PodTemplateSpec
from koordinator.api.reservation import (
    ALIGNED,
    AVAILABLE,
    PENDING,
    Reservation,
    ReservationOwner,
    ReservationSpec,
    ReservationStatus,
)
from koordinator.model.label_selector import SelectorError
from koordinator.scheduler.plugins.reservation.matching import Owners
from koordinator.scheduler.plugins.reservation.reserve_pod import requested_amounts

_RESERVATION_MODE: Final = "Reservation"


def is_operating(pod: Pod) -> bool:
    """Whether the pod is in operating mode."""
    return pod.metadata.labels.get(label_keys.OPERATING_MODE) == _RESERVATION_MODE


def operating_reservation(pod: Pod) -> Reservation:
    """The Reservation that an operating-mode pod represents; it is available while the pod runs and is ready. If the
    owners cannot be decoded, it has none."""
    status = ReservationStatus(
        phase=AVAILABLE if _is_ready(pod) else PENDING,
        node_name=pod.spec.node_name,
        allocatable=requested_amounts(pod),
    )
    owners = decode_or(pod.metadata.annotations.get(annotation_keys.RESERVATION_OWNERS), list[ReservationOwner], [])
    spec = ReservationSpec(
        template=PodTemplateSpec(spec=pod.spec), owners=owners, allocate_once=True, allocate_policy=ALIGNED
    )
    return Reservation(metadata=pod.metadata, spec=spec, status=status)


def current_owner(pod: Pod) -> ObjectReference | None:
    """The current owner by the pod's own annotation; None if there is none, or if it cannot be decoded."""
    return decode_or(pod.metadata.annotations.get(annotation_keys.RESERVATION_CURRENT_OWNER), ObjectReference, None)


def operating_faults(pod: Pod) -> list[str]:
    """The errors in the pod's annotations, for its author; empty if they are valid."""
    found: list[str] = []
    key = annotation_keys.RESERVATION_OWNERS
    try:
        for index, owner in enumerate(decode(pod.metadata.annotations.get(key) or "[]", list[ReservationOwner])):
            found += _owner_fault(f"annotation {key}[{index}].labelSelector", owner)
    except DecodeError as error:
        found.append(f"annotation {key}: {error}; no pod owns what the pod reserves until it is mended")
    key = annotation_keys.RESERVATION_CURRENT_OWNER
    try:
        decode(pod.metadata.annotations.get(key) or "{}", ObjectReference)
    except DecodeError as error:
        found.append(f"annotation {key}: {error}; it counts as if it were not there")
    return found


def _owner_fault(where: str, owner: ReservationOwner) -> list[str]:
    try:
        Owners([owner])
    except SelectorError as error:
        return [f"{where}: {error}; no pod owns what the pod reserves until it is mended"]
    return []


def _is_ready(pod: Pod) -> bool:
    ready = any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
    return pod.status.phase == "Running" and ready
