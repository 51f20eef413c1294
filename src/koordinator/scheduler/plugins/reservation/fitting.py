"""Checks whether a pod fits into a Reservation, which may use more of its node if the policy allows it. Pure
arithmetic.

The pod fits on the node by way of one Reservation if the free capacity of the node, with what that Reservation still
keeps, is sufficient; what other Reservations keep stays theirs. A Restricted Reservation must be sufficient by itself,
too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from koordinator.api.resource_names import PODS
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import NodeStatus
from koordinator.scheduler.plugins.node_ports import host_ports
from koordinator.scheduler.plugins.reservation.booking import Amounts, Booking, Unmatched
from koordinator.scheduler.plugins.reservation.matching import Mismatch

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


_PREFIX: Final = "Reservation(s) "
_OWNED: Final = "Reservation(s) matched owner total"
_EXACTLY: Final = "Reservation(s) exactly matches the requested reservation name"
_FOR_NODE: Final = "Reservation(s) for node reason that "
_ORDER: Final = (Mismatch.NAME, Mismatch.AFFINITY, Mismatch.UNSCHEDULABLE, Mismatch.NOT_EXACT, Mismatch.TAINTS)


class Owned(NamedTuple):
    """What is counted: the Reservations that a pod owns, or the pods that a Reservation may take over."""

    matched: Sequence[str]
    """The node of each that matches."""
    unmatched: Sequence[Unmatched]
    by_name: bool = False
    """Whether those that match were selected by name."""


def summary(owned: Owned, statuses: Sequence[NodeStatus], names: Sequence[str]) -> str:
    """The text added to the message of a pod. ``names``: those of the rows of ``statuses``."""
    found: list[str] = []
    if owned.by_name and owned.matched:
        found.append(f"{len(owned.matched)} {_EXACTLY}")
    for why in _ORDER:
        counts = Counter(each.detail for each in owned.unmatched if each.why is why)
        found += [
            f"{count} {_PREFIX}{why.value}{' ' + detail if detail else ''}" for detail, count in sorted(counts.items())
        ]
    for text, count in sorted(_for_node_reasons(owned.matched, statuses, names).items()):
        found.append(f"{count} {_FOR_NODE}{text}")
    return ", ".join([*found, f"{len(owned.matched) + len(owned.unmatched)} {_OWNED}"])


def _for_node_reasons(nodes: Iterable[str], statuses: Sequence[NodeStatus], names: Sequence[str]) -> Counter[str]:
    """Count each match with the reasons of its node that do not concern the Reservation itself."""
    matched = Counter(nodes)
    counts: Counter[str] = Counter()
    for status in statuses:
        own = sum(reason.text.startswith(_PREFIX) for reason in status.reasons)
        others = [reason.text for reason in status.reasons if not reason.text.startswith(_PREFIX)]
        for row in status.rows.tolist():
            left = matched.get(names[row], 0) - own
            if left > 0:
                counts.update(dict.fromkeys(others, left))
    return counts


def event_note(message: str) -> str:
    """The note of the event about reservations, extracted from a pod's whole message; "" if that has no such counts."""
    _, found, rest = message.partition(" nodes are available: ")
    if not found:
        return ""
    items = [each.strip().rstrip(".") for each in rest.replace(". ", ", ").split(",")]
    counted = [each for each in items if _count_of(each, _PREFIX)]
    total = next((each.split(" ")[0] for each in counted if each.endswith(_OWNED)), "")
    if not total:
        return ""
    shown = [each for each in counted if not each.endswith(_OWNED)]
    return f"0/{total} reservations are available: {', '.join(_arranged(shown))}."


def _count_of(text: str, prefix: str) -> bool:
    count, _, rest = text.partition(" ")
    return count.isdigit() and rest.startswith(prefix)


def _arranged(items: Iterable[str]) -> list[str]:
    """Texts about exact names first, those about nodes last."""
    return sorted(items, key=lambda each: (_FOR_NODE.strip() in each) - (_EXACTLY in each))
