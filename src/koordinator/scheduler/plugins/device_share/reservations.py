"""Devices that Reservations hold: what their owners may still take, and what counts twice while owners have taken it.

A reserve pod holds the devices of its Reservation. Where owners have taken some of them, these count for both. A pod
that may take from Reservations sees the node without their reserve pods, so what is left of each Reservation looks free
and has to be kept from pods that do not take from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from koordinator.api.reservation import RESTRICTED
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.view import ReservationInfo
from koordinator.scheduler.plugins.device_share.allocation import ByType, DeviceAllocations, amounts_held
from koordinator.scheduler.plugins.device_share.node_devices import Share

PREFIX = "Reservation(s) "
"""The prefix of reasons that concern a Reservation and not the node."""


@dataclass(frozen=True, slots=True)
class ReservedDevices:
    """The devices of one Reservation."""

    held: ByType
    left: ByType
    """What owners may still take."""
    is_restricted: bool
    """Whether owners take no other devices of the types that it holds."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What is restored on a node. ``matched``: by uid of the Reservation, only those with devices."""

    matched: Mapping[str, ReservedDevices]
    twice: ByType
    """What counts for an unmatched Reservation and for the pods that have taken it."""


def reserved_devices(
    reservation: ReservationInfo, held: DeviceAllocations, users: Iterable[DeviceAllocations]
) -> ReservedDevices:
    """``held`` by the Reservation, of which its users have taken some."""
    whole = amounts_held(held)
    taken = total([amounts_held(each) for each in users])
    return ReservedDevices(whole, minus(whole, taken), reservation.reservation.spec.allocate_policy == RESTRICTED)


def share_of_node(restored: Restored | None, *, ignores_reservations: bool) -> Share:
    """The share of a pod that takes from no Reservation."""
    if restored is None:
        return Share({}, {}, {}, {})
    kept = {} if ignores_reservations else total([each.left for each in restored.matched.values()])
    return Share(restored.twice, kept, {}, {})


def share_of_reservation(restored: Restored, uid: str) -> Share:
    """The share of a pod that takes from the Reservation: what is left of that, and of the node."""
    own = restored.matched[uid]
    kept = total([each.left for other, each in restored.matched.items() if other != uid])
    required: ByType = {}
    if own.is_restricted:
        required = {
            device_type: {minor: own.left.get(device_type, {}).get(minor, {}) for minor in minors}
            for device_type, minors in own.held.items()
        }
    return Share(restored.twice, kept, required, minors_of(own.held))


def share_of_taking_over(restored: Restored | None, held: Mapping[str, ByType], chosen: Collection[str]) -> Share:
    """The share of a Reservation that takes over the pods with the uids ``chosen``. ``held`` is what each candidate
    holds; the node is seen without all of them."""
    kept = total([each for uid, each in held.items() if uid not in chosen])
    own = total([held[uid] for uid in chosen if uid in held])
    return Share(restored.twice if restored is not None else {}, kept, {}, minors_of(own))


def includes(found: DeviceAllocations, held: ByType) -> bool:
    """Whether all devices of ``held`` are among those of ``found``."""
    there = {(device_type, device.minor) for device_type, devices in found for device in devices}
    return all((device_type, minor) in there for device_type, minors in held.items() for minor in minors)


def of_reservation(reason: Reason) -> Reason:
    """The reason, as one that concerns a Reservation."""
    return Reason(PREFIX + reason.text)


def minors_of(amounts: ByType) -> dict[str, frozenset[int]]:
    """The minor numbers by type."""
    return {device_type: frozenset(minors) for device_type, minors in amounts.items()}


def total(parts: Sequence[ByType]) -> ByType:
    """The sum by type, minor and resource."""
    if len(parts) == 1:
        return parts[0]
    found: dict[str, dict[int, dict[str, int]]] = {}
    for part in parts:
        for device_type, minors in part.items():
            for minor, amounts in minors.items():
                counted = found.setdefault(device_type, {}).setdefault(minor, {})
                for name, amount in amounts.items():
                    counted[name] = counted.get(name, 0) + amount
    return found


def minus(amounts: ByType, taken: ByType) -> ByType:
    """What is left, never below 0; empty entries are omitted."""
    found: dict[str, dict[int, dict[str, int]]] = {}
    for device_type, minors in amounts.items():
        for minor, of_minor in minors.items():
            gone = taken.get(device_type, {}).get(minor, {})
            left = {name: amount - gone.get(name, 0) for name, amount in of_minor.items()}
            left = {name: amount for name, amount in left.items() if amount > 0}
            if left:
                found.setdefault(device_type, {})[minor] = left
    return found
