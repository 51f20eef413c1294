"""Reservations that have a node: what they hold, which of them match a pod, which pods take from each, and what is
wrong with them.

Which pod takes from which Reservation is in the allocation ledger; what a pod requests is known of the pod alone, and
changes when it is resized. So only the places of the pods are kept here, and what they take is derived at every change.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.codec import DecodeError, decode, decode_or
from koordinator.api.meta import WireStruct
from koordinator.api.pod import Pod
from koordinator.api.reservation import RESTRICTED, Reservation
from koordinator.api.resource_names import PODS
from koordinator.api.usable_amounts import unusable
from koordinator.model.label_selector import SelectorError
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.row_amounts import CPU, MEMORY, whole_amounts
from koordinator.scheduler.plugins.reservation.matching import Mismatch, Owners, owner_faults
from koordinator.scheduler.plugins.reservation.reserve_pod import (
    ResourcesAnnotation,
    current_owner,
    is_available,
    is_operating,
    problem,
)

Amounts = Mapping[str, int]
"""By name of the resource, in the units of columns."""
NO_CREDIT: Final[tuple[Amounts, tuple[int, int]]] = {}, (0, 0)


class RestrictedOptions(WireStruct):
    """The annotation ``reservation-restricted-options``: the resources that are restricted; empty for all."""

    resources: Sequence[str] = ()


@dataclass(slots=True)
class Booking:
    """A Reservation that has a node."""

    reservation: Reservation
    pod: Pod
    """The reserve pod, or the operating-mode pod that represents the Reservation."""
    owners: Owners | None
    """None if they cannot be decoded."""
    allocatable: Amounts
    restricted: frozenset[str]
    """The resources of which owners may not take more than is left here; empty unless the policy is Restricted."""
    reserved: Amounts
    """The part that owners may not use."""
    order: int
    """The label ``reservation-order``; 0 without one."""
    users: dict[str, PodInfo] = field(default_factory=dict)
    """The pods on its node that take from it, by uid, assumed ones included, as they are now."""
    is_claimed: bool = False
    """Whether the annotation of an operating-mode pod names a current owner."""
    row: int = -1
    """The row of the node, while the reserve pod counts there."""
    index_keys: frozenset[Hashable] = frozenset()
    """The keys under which it is indexed for its owners."""

    @property
    def name(self) -> str:
        return self.reservation.metadata.name

    @property
    def uid(self) -> str:
        return self.reservation.metadata.uid

    @property
    def node_name(self) -> str:
        return self.reservation.status.node_name

    @property
    def is_once(self) -> bool:
        """Whether its first owner uses it up (allocateOnce)."""
        return self.reservation.spec.allocate_once is not False

    @property
    def is_open(self) -> bool:
        """Whether another owner may take from it."""
        is_taken = self.is_claimed or (self.is_once and bool(self.users))
        return self.owners is not None and is_available(self.reservation) and not is_taken

    @property
    def allocated(self) -> dict[str, int]:
        """What owners request of its resources; may exceed these."""
        return {
            name: sum(user.request.amounts.get(name, 0) for user in self.users.values()) for name in self.allocatable
        }

    @property
    def remaining(self) -> dict[str, int]:
        """What is kept free on the node."""
        allocated = self.allocated
        return {name: max(0, amount - allocated[name]) for name, amount in self.allocatable.items()}


class Awaited(NamedTuple):
    """The Reservation that a pod is going to take from once its victims have left the node."""

    node_name: str
    uid: str
    """The uid of the Reservation."""


class Unmatched(NamedTuple):
    """A Reservation that the pod owns and may not take from."""

    uid: str
    node_name: str
    why: Mismatch
    detail: str


class Match(NamedTuple):
    """The Reservations that match a pod. Pods with equal matches are treated alike."""

    uids: tuple[str, ...] = ()
    """The uids of those that it may take from."""
    unmatched: tuple[Unmatched, ...] = ()
    first: str = ""
    """The uid of the one with the smallest order that is not 0; "" if there is none."""

    @property
    def is_empty(self) -> bool:
        """Whether the pod owns no Reservation."""
        return not self.uids and not self.unmatched


NO_MATCH: Final = Match()


def match_of(owned: Sequence[tuple[Booking, Unmatched | None]]) -> Match:
    """The match of a pod that owns these Reservations, each with why it is not available to the pod."""
    there = [(booking, why_not) for booking, why_not in owned if booking.is_open]
    if not there:
        return NO_MATCH
    matched = [booking for booking, why_not in there if why_not is None]
    ordered = [(booking.order, booking.uid) for booking in matched if booking.order]
    unmatched = tuple([why_not for _, why_not in there if why_not is not None])
    return Match(tuple([booking.uid for booking in matched]), unmatched, min(ordered)[1] if ordered else "")


def booking_of(reservation: Reservation, pod: Pod) -> Booking:
    """The booking of a Reservation with a node. Fields that cannot be decoded count as unset; owners that cannot be
    decoded match no pod."""
    try:
        owners: Owners | None = Owners(reservation.spec.owners)
    except SelectorError:
        owners = None
    allocatable = whole_amounts(reservation.status.allocatable)
    reserved = reservation.metadata.annotations.get(annotation_keys.NODE_RESERVATION)
    return Booking(
        reservation,
        pod,
        owners,
        allocatable,
        restricted=_restricted(reservation, allocatable),
        reserved=whole_amounts(decode_or(reserved, ResourcesAnnotation, ResourcesAnnotation()).resources),
        order=whole_number(reservation.metadata.labels.get(label_keys.RESERVATION_ORDER)) or 0,
        is_claimed=is_operating(pod) and current_owner(pod) is not None,
    )


def _restricted(reservation: Reservation, allocatable: Amounts) -> frozenset[str]:
    if reservation.spec.allocate_policy != RESTRICTED:
        return frozenset()
    text = reservation.metadata.annotations.get(annotation_keys.RESERVATION_RESTRICTED_OPTIONS)
    named = decode_or(text, RestrictedOptions, RestrictedOptions()).resources
    return frozenset(allocatable) & (set(named) or set(allocatable))


def whole_number(text: str | None) -> int | None:
    """The number of 64 bits in a label or an annotation; None if there is none."""
    try:
        number = int(text or "")
    except ValueError:
        return None
    return number if -(2**63) <= number < 2**63 else None


def taken_of(booking: Booking, reserve_pod: PodInfo | None) -> tuple[Amounts, tuple[int, int]]:
    """What users take of the Reservation, and nothing more: what its reserve pod and they would both count for."""
    if not booking.users or reserve_pod is None:
        return NO_CREDIT
    requests = [user.request for user in booking.users.values()]
    amounts: dict[str, int] = {}
    for name, held in booking.allocatable.items():
        taken = min(held, sum([each.amounts.get(name, 0) for each in requests]))
        if taken and name != PODS:
            amounts[name] = taken
    most = reserve_pod.request.non_zero
    cpu, memory = (min(most[index], sum([each.non_zero[index] for each in requests])) for index in (CPU, MEMORY))
    return amounts, (cpu, memory)


_ANNOTATIONS: Final[tuple[tuple[str, type[WireStruct]], ...]] = (
    (annotation_keys.RESERVATION_RESIZE_ALLOCATABLE, ResourcesAnnotation),
    (annotation_keys.NODE_RESERVATION, ResourcesAnnotation),
    (annotation_keys.RESERVATION_RESTRICTED_OPTIONS, RestrictedOptions),
)


def faults(reservation: Reservation) -> list[str]:
    """All errors of a Reservation; empty if it is valid."""
    found = [text] if (text := problem(reservation)) else []
    found += owner_faults(reservation.spec.owners, "spec.owners", "the reservation")
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
    order = reservation.metadata.labels.get(label_keys.RESERVATION_ORDER, "")
    if order and whole_number(order) is None:
        found.append(f"label {label_keys.RESERVATION_ORDER}: {order!r} is not a whole number of 64 bits")
    return found
