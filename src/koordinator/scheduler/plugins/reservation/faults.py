"""Validation of Reservations: sentences for the author that name the field, the value and what is allowed."""

from __future__ import annotations

from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.codec import DecodeError, decode
from koordinator.api.meta import WireStruct
from koordinator.api.reservation import Reservation
from koordinator.api.usable_amounts import unusable
from koordinator.model.label_selector import SelectorError
from koordinator.scheduler.plugins.reservation.booking import RestrictedOptions
from koordinator.scheduler.plugins.reservation.matching import Owners
from koordinator.scheduler.plugins.reservation.reserve_pod import ResourcesAnnotation, problem

_ANNOTATIONS: Final[tuple[tuple[str, type[WireStruct]], ...]] = (
    (annotation_keys.RESERVATION_RESIZE_ALLOCATABLE, ResourcesAnnotation),
    (annotation_keys.NODE_RESERVATION, ResourcesAnnotation),
    (annotation_keys.RESERVATION_RESTRICTED_OPTIONS, RestrictedOptions),
)


def faults(reservation: Reservation) -> list[str]:
    """All errors of a Reservation; empty if it is valid."""
    found = [text] if (text := problem(reservation)) else []
    for index, owner in enumerate(reservation.spec.owners):
        try:
            Owners([owner])
        except SelectorError as error:
            found.append(f"spec.owners[{index}].labelSelector: {error}; no pod owns the reservation until it is mended")
    template = reservation.spec.template
    for index, container in enumerate(template.spec.containers if template is not None else ()):
        found += unusable(container.resources.requests, f"spec.template.spec.containers[{index}].resources.requests")
    found += unusable(reservation.status.allocatable, "status.allocatable")
    annotations = reservation.metadata.annotations
    for key, kind in _ANNOTATIONS:
        try:
            if annotations.get(key):
                decode(annotations[key].encode(), kind)
        except DecodeError as error:
            found.append(f"annotation {key}: {error}")
    return [*found, *_order_fault(reservation)]


def _order_fault(reservation: Reservation) -> list[str]:
    text = reservation.metadata.labels.get(label_keys.RESERVATION_ORDER, "")
    try:
        fits = not text or -(2**63) <= int(text) < 2**63
    except ValueError:
        fits = False
    return [] if fits else [f"label {label_keys.RESERVATION_ORDER}: {text!r} is not a whole number of 64 bits"]
