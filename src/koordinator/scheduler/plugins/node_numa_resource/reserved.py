"""The allocations of Reservations on a node, and the allocation of a pod that may take from them. Pure.

A pod that may take from Reservations sees the node without these; what their owners have taken stays taken. So what is
left of those that it does not take from is counted again, since it is for others. For all other pods a Reservation and
its owners both count, and what the owners have taken of it is restored once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from koordinator.api.reservation import RESTRICTED
from koordinator.model.cpu_allocation.accumulator import NOT_ENOUGH, ExclusivePolicy
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.plugins.node_numa_resource.allocation import (
    Amounts,
    FreeCapacity,
    NumaAllocator,
    PodAllocation,
    Request,
    Taken,
    added,
    positive,
    subtracted,
    union,
)


@dataclass(frozen=True, slots=True)
class Reserved:
    """What one Reservation holds, or a running pod that a Reservation may take over."""

    uid: str
    cpus: int
    """Those that no owner has taken yet."""
    amounts: Amounts
    """The same; negative where owners have more than it holds."""
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE
    policy: str = ""
    """The Reservation's allocate policy."""
    is_running_pod: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """What is restored on a row in its present state. The Reservations ``matched`` are removed from it."""

    matched: Mapping[str, Reserved] = field(default_factory=dict)
    """By uid."""
    counted_twice: Amounts = field(default_factory=dict)
    """What owners have taken of Reservations that are still there."""


def held_by(
    uid: str, allocation: PodAllocation, owners: Sequence[PodAllocation], policy: str, *, is_running_pod: bool = False
) -> Reserved:
    """What is left of an allocation when ``owners`` have taken from it."""
    taken = union(owner.cpus for owner in owners)
    amounts = subtracted(allocation.amounts, *[owner.amounts for owner in owners])
    return Reserved(uid, allocation.cpus & ~taken, amounts, allocation.exclusive, policy, is_running_pod)


def counted_twice(allocation: PodAllocation, owners: Sequence[PodAllocation]) -> dict[int, dict[str, int]]:
    """The part of an allocation that its owners have taken, too."""
    taken = added(*[owner.amounts for owner in owners])
    return {
        numa_node: {name: min(amount, taken.get(numa_node, {}).get(name, 0)) for name, amount in amounts.items()}
        for numa_node, amounts in allocation.amounts.items()
    }


class Choice:
    """The possible allocations of a pod on a node. ``capacity`` counts all that is taken, and nothing that is reserved.
    ``mask`` of the methods are the NUMA nodes to keep to, None for any."""

    def __init__(
        self, capacity: FreeCapacity, request: Request, restored: Restored, *, needs_reservation: bool = False
    ) -> None:
        """``needs_reservation``: the pod must take from a Reservation."""
        self.capacity = capacity
        self.request = request
        self.restored = restored
        self.needs_reservation = needs_reservation
        self._allocators: dict[str, NumaAllocator] = {}
        self._all: NumaAllocator | None = None

    def from_any(self, mask: int | None, *, ignoring: bool = False) -> PodAllocation | tuple[Reason, ...]:
        """From one of the Reservations, or else from the node. ``ignoring``: from all of them and the node alike."""
        if ignoring and self.restored.matched:
            return self.unreserved.allocate(mask)
        found = self.from_reservations(list(self.restored.matched), mask)
        return self.from_node(mask) if found is None else found

    def fits(self, mask: int | None, *, ignoring: bool = False) -> bool:
        """Whether ``from_any`` would succeed."""
        if not self.restored.matched:
            return self._allocator("").fits(mask)
        return isinstance(self.from_any(mask, ignoring=ignoring), PodAllocation)

    def from_reservations(self, uids: Sequence[str], mask: int | None) -> PodAllocation | tuple[Reason, ...] | None:
        """From the first of these that suffices; None if none does, and the pod need not use one."""
        reasons: list[Reason] = []
        matched = [self.restored.matched[uid] for uid in sorted(uids) if uid in self.restored.matched]
        for each in matched:
            found = self._from_one(each, mask)
            if isinstance(found, PodAllocation):
                return found
            reasons += found
        if matched and self.needs_reservation:
            return tuple([Reason(f"Reservation(s) {reason.text}") for reason in reasons])
        return None

    def from_node(self, mask: int | None) -> PodAllocation | tuple[Reason, ...]:
        """From what is not reserved."""
        return self._allocator("").allocate(mask)

    @property
    def unreserved(self) -> NumaAllocator:
        """An allocator for all Reservations and the node together."""
        if self._all is None:
            preferred = union(each.cpus for each in self.restored.matched.values())
            self._all = NumaAllocator(replace(self.shared_capacity, preferred=preferred), self.request)
        return self._all

    @property
    def shared_capacity(self) -> FreeCapacity:
        """The free capacity with what its Reservations have left."""
        if not self.restored.counted_twice:
            return self.capacity
        taken = self.capacity.taken
        return replace(
            self.capacity, taken=replace(taken, amounts=subtracted(taken.amounts, self.restored.counted_twice))
        )

    def with_restored(self, restored: Restored) -> Choice:
        """The same with other Reservations."""
        return Choice(self.capacity, self.request, restored, needs_reservation=self.needs_reservation)

    def _from_one(self, reserved: Reserved, mask: int | None) -> PodAllocation | tuple[Reason, ...]:
        found = self._allocator(reserved.uid).allocate(mask)
        if reserved.policy != RESTRICTED or not isinstance(found, PodAllocation):
            return found
        if reserved.is_running_pod:
            # It is taken over as a whole.
            return found if not reserved.cpus & ~found.cpus else (Reason(NOT_ENOUGH),)
        if self.request.cpus > reserved.cpus.bit_count():
            return (Reason(NOT_ENOUGH),)
        capacity = self._kept_for_others(reserved.uid)
        limits = positive(reserved.amounts) if reserved.amounts else None
        limited = replace(capacity, usable_cpus=capacity.usable_cpus & reserved.cpus, limits=limits)
        return NumaAllocator(limited, self.request).allocate(mask)

    def _allocator(self, uid: str) -> NumaAllocator:
        """An allocator of the capacity for a pod that takes from this Reservation alone; "" for the node."""
        allocator = self._allocators.get(uid)
        if allocator is None:
            allocator = self._allocators[uid] = NumaAllocator(self._kept_for_others(uid), self.request)
        return allocator

    def _kept_for_others(self, uid: str) -> FreeCapacity:
        others = [each for each in self.restored.matched.values() if each.uid != uid]
        own = self.restored.matched.get(uid)
        capacity = self.shared_capacity
        if not others and own is None:
            return capacity
        taken, exclusive = capacity.taken, dict(capacity.taken.exclusive)
        for each in others:
            if each.exclusive:
                exclusive[each.exclusive] = exclusive.get(each.exclusive, 0) | each.cpus
        kept = Taken(
            taken.cpus | union(each.cpus for each in others),
            added(taken.amounts, *[positive(each.amounts) for each in others]),
            exclusive,
        )
        return replace(capacity, taken=kept, preferred=own.cpus if own is not None else 0)
