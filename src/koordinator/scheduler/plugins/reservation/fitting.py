"""Checks whether a pod fits into a Reservation, which may use more of its node if the policy allows it. Pure
arithmetic.

The pod fits on the node by way of one Reservation if the free capacity of the node, with what that Reservation still
keeps, is sufficient; what other Reservations keep stays theirs. A Restricted Reservation must be sufficient by itself,
too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.api.resource_names import PODS
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.node_ports import host_ports
from koordinator.scheduler.plugins.reservation.booking import Amounts, Booking

NONE_MATCHES: Final = Reason("node(s) no reservations match reservation affinity", unresolvable=True)
NONE_SUITS: Final = Reason("node(s) no reservation(s) to meet the requirements")
POLICY_CONFLICT: Final = Reason("node(s) reservation allocate policy conflict", unresolvable=True)
OTHER_NODE: Final = Reason("node(s) didn't match the nodeName specified by reservation", unresolvable=True)
BY_NODE: Final = " by node"
_TOO_MANY: Final = "Reservation(s) Too many pods"


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """The free capacity of a node without the Reservations that the pod may take from, and what those still keep."""

    free: Mapping[str, int]
    """Of each resource that the pod requests; may be below 0."""
    matched: Sequence[Booking]

    def reasons(self, booking: Booking, request: Amounts, *, detailed: bool) -> tuple[Reason, ...]:
        """Why the pod does not fit by way of ``booking``, one of ``matched``; empty if it does."""
        others = [each for each in self.matched if each is not booking]
        lacking = self.lacking(request, others, booking.reserved)
        found = [Reason(f"Insufficient {name}{BY_NODE}") for name in lacking]
        return (*found, *restricted_reasons(booking, request, detailed=detailed))

    def lacking(self, request: Amounts, kept: Iterable[Booking], reserved: Amounts) -> list[str]:
        """The resources with insufficient capacity when ``kept`` keep what they have."""
        if not any(request.values()):
            return []
        remaining = [each.remaining for each in kept]
        return [
            name
            for name, amount in request.items()
            if amount > self.free[name] - sum(each.get(name, 0) for each in remaining) - reserved.get(name, 0)
        ]


def restricted_reasons(booking: Booking, request: Amounts, *, detailed: bool) -> tuple[Reason, ...]:
    """Why a Restricted Reservation is insufficient by itself; empty if it is sufficient, or has another policy."""
    found: list[Reason] = []
    if PODS in booking.restricted:
        used, capacity = len(booking.users), booking.allocatable[PODS]
        if used + 1 > capacity:
            text = f"{_TOO_MANY}, requested: 1, used: {used}, capacity: {capacity}" if detailed else _TOO_MANY
            found.append(Reason(text))
    allocated = booking.allocated if booking.restricted else {}
    for name in sorted(booking.restricted - {PODS}):
        amount, capacity = request.get(name, 0), booking.allocatable[name]
        used = max(0, allocated[name])
        if amount and amount > capacity - booking.reserved.get(name, 0) - used:
            text = f"Reservation(s) Insufficient {name}"
            if detailed:
                text += f", requested: {amount}, used: {used}, capacity: {capacity}"
            found.append(Reason(text))
    return tuple(found)


def shares_a_resource(booking: Booking, request: Amounts) -> bool:
    """Whether the pod requests any resource that the Reservation holds."""
    return any(amount and booking.allocatable.get(name) for name, amount in request.items())


def has_left(booking: Booking, pod: PodInfo) -> bool:
    """Whether the Reservation has anything left that the pod requests, or a host port of the pod."""
    remaining, reserved = booking.remaining, booking.reserved
    if any(amount and remaining.get(name, 0) > reserved.get(name, 0) for name, amount in pod.request.amounts.items()):
        return True
    wanted = host_ports(pod.pod)
    return bool(wanted) and not set(wanted).isdisjoint(host_ports(booking.pod))


def outranks_a_user(booking: Booking, pod: PodInfo) -> bool:
    """Whether a pod of lower priority takes from the Reservation: what that pod leaves is for ``pod`` before others."""
    return any(user.priority < pod.priority for user in booking.users.values())


def score(booking: Booking, request: Amounts) -> int:
    """How full the Reservation would be, 0..100: the mean over its resources, as NodeResourcesFit's MostAllocated."""
    allocated = booking.allocated
    held = [(name, amount) for name, amount in booking.allocatable.items() if amount]
    if not held:
        return 0
    shares = (
        100 * wanted // capacity if (wanted := request.get(name, 0) + allocated[name]) <= capacity else 0
        for name, capacity in held
    )
    return sum(shares) // len(held)
