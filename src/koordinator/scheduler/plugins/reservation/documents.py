"""The service documents and the gauges about Reservations: owners, users, what is left, and which owners wait and
why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from prometheus_client.registry import Collector

from koordinator.api.codec import to_document
from koordinator.api.explanations import ReservationExplanation, ReservationUser, ReservedResource, WaitingPod
from koordinator.api.quantity import Format, Quantity
from koordinator.api.reservation import (
    AVAILABLE,
    FAILED,
    PENDING,
    SCHEDULED_CONDITION,
    SUCCEEDED,
    Reservation,
    ReservationOwner,
)
from koordinator.api.resource_names import CPU, MEMORY, PODS
from koordinator.base.instruments import Scraped
from koordinator.model.label_selector import SelectorError
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.explain.explainer import amount_of, amount_text
from koordinator.scheduler.plugins.reservation.booking import Amounts, Booking, faults
from koordinator.scheduler.plugins.reservation.cache import ReservationCache
from koordinator.scheduler.plugins.reservation.matching import Owners
from koordinator.scheduler.plugins.reservation.reserve_pod import is_available, is_operating, is_over
from koordinator.scheduler.services.node_document import ports_document, resource_document

_WAITING_SHOWN: Final = 10
_PHASES: Final = (PENDING, AVAILABLE, SUCCEEDED, FAILED)
_GIBIBYTE: Final = 1 << 30

Refusal = Callable[[Booking, PodInfo], str]
"""Why an owner does not take from a Reservation at present; "" if it would."""


def explain_reservation(cache: ReservationCache, reservation: Reservation, refusal: Refusal) -> ReservationExplanation:
    """The explanation of a Reservation."""
    booking = cache.bookings.get(reservation.metadata.uid)
    status, spec = reservation.status, reservation.spec
    waiting = _waiting_owners(cache, reservation)
    users = cache.users_of(reservation.metadata.uid).values()
    without_node = "the reservation has ended" if is_over(reservation) else "the reservation is on no node yet"
    return ReservationExplanation(
        reservation=reservation.metadata.name,
        phase=status.phase or PENDING,
        node=status.node_name,
        faults=list(faults(reservation)),
        message=_message(reservation),
        allocate_once=spec.allocate_once is not False,
        allocate_policy=spec.allocate_policy,
        owners=[_owner_text(each) for each in spec.owners],
        resources=_resources(booking) if booking is not None else [],
        users=[ReservationUser(pod=each.key, uses=_request(each)) for each in sorted(users, key=attrgetter("key"))],
        waiting=[
            WaitingPod(
                pod=each.key,
                request=_request(each),
                reason=refusal(booking, each) if booking is not None else without_node,
            )
            for each in waiting[:_WAITING_SHOWN]
        ],
        waiting_left_out=max(0, len(waiting) - _WAITING_SHOWN),
    )


def _waiting_owners(cache: ReservationCache, reservation: Reservation) -> Sequence[PodInfo]:
    """The pods without a node that own the Reservation, highest priority first."""
    try:
        owners = Owners(reservation.spec.owners)
    except SelectorError:
        return ()
    found = [pod for pod in cache.waiting.values() if owners.include(pod.pod)]
    return sorted(found, key=lambda pod: (-(pod.pod.spec.priority or 0), pod.key))


def _message(reservation: Reservation) -> str:
    """Why it has no node; "" if it has one."""
    if reservation.status.node_name:
        return ""
    found = (each.message for each in reservation.status.conditions if each.type == SCHEDULED_CONDITION)
    return next(found, "")


def _owner_text(owner: ReservationOwner) -> str:
    parts: list[str] = []
    if owner.object is not None:
        name = "/".join(filter(None, (owner.object.namespace, owner.object.name))) or owner.object.uid
        parts.append(f"the pod {name}")
    if owner.controller is not None:
        kind, name = owner.controller.kind or "controller", owner.controller.name or owner.controller.uid
        parts.append(f"pods of the {kind} {'/'.join(filter(None, (owner.controller.namespace, name)))}")
    if owner.label_selector is not None:
        labels = [f"{key}={value}" for key, value in sorted(owner.label_selector.match_labels.items())]
        labels += [
            " ".join(filter(None, (each.key, each.operator, ",".join(each.values))))
            for each in owner.label_selector.match_expressions
        ]
        parts.append(f"pods with {', '.join(labels)}" if labels else "pods with any labels")
    return "; ".join(parts) or "every pod"


def _resources(booking: Booking) -> list[ReservedResource]:
    allocated, remaining = booking.allocated, booking.remaining
    return [
        ReservedResource(
            name=name,
            allocatable=amount_text(name, amount),
            allocated=amount_text(name, allocated[name]),
            left=amount_text(name, remaining[name]),
        )
        for name, amount in sorted(booking.allocatable.items())
    ]


def _request(pod: PodInfo) -> str:
    amounts = sorted(pod.request.amounts.items())
    return ", ".join(amount_of(name, amount) for name, amount in amounts if amount and name != PODS) or "nothing"


def node_reservations(cache: ReservationCache, node_name: str) -> dict[str, Any]:
    """The original's document of the available Reservations on a node; empty members are omitted."""
    there = cache.on_node_named.of(node_name)
    bookings = sorted((each for each in there.values() if is_available(each.reservation)), key=lambda each: each.name)
    return {"items": [_item(each) for each in bookings]} if bookings else {}


def _item(booking: Booking) -> dict[str, Any]:
    allocated = {name: amount for name, amount in booking.allocated.items() if amount}
    users = sorted(booking.users.values(), key=attrgetter("key"))
    available = {
        name: max(0, amount - booking.reserved.get(name, 0) - allocated.get(name, 0))
        for name, amount in booking.allocatable.items()
    }
    document = {
        "name": booking.name,
        "namespace": booking.reservation.metadata.namespace,
        "uid": booking.uid,
        "kind": "Pod" if is_operating(booking.pod) else "Reservation",
        "available": is_available(booking.reservation),
        "allocateOnce": booking.is_once,
        "allocatable": _resource_list(booking.allocatable),
        "reserved": _resource_list(booking.reserved),
        "allocated": _resource_list(allocated),
        "allocatablePorts": ports_document([booking.pod]),
        "allocatedPorts": ports_document(each.pod for each in users),
        "availableResource": resource_document({**available, PODS: 0}),
        "allocatedResource": resource_document({**allocated, PODS: 0}),
        "owners": to_document(list(booking.reservation.spec.owners)),
        "allocatePolicy": booking.reservation.spec.allocate_policy,
        "assignedPods": [
            {
                "Namespace": each.pod.metadata.namespace,
                "Name": each.pod.metadata.name,
                "UID": each.uid,
                "Requests": _resource_list(each.request.amounts),
                "Ports": ports_document([each.pod]) or None,
            }
            for each in users
        ],
    }
    return {key: value for key, value in document.items() if value}


def _resource_list(amounts: Amounts) -> Mapping[str, str]:
    return {name: _quantity(name, amount) for name, amount in sorted(amounts.items()) if name != PODS}


def _quantity(name: str, amount: int) -> str:
    if name == CPU:
        return str(Quantity(amount * 1_000_000, Format.DECIMAL_SI))
    return str(Quantity(amount * 1_000_000_000, Format.BINARY_SI if name.endswith("memory") else Format.DECIMAL_SI))


def reservation_gauges(reservations: Callable[[], Iterable[Reservation]]) -> tuple[Collector, ...]:
    """By the statuses of the Reservations; the names, labels and units are the original's."""
    return (
        Scraped(
            "scheduler_reservation_status_phase",
            "[ALPHA] The current number of reservations in each status phase "
            "(e.g. Pending, Available, Succeeded, Failed)",
            ("name", "phase"),
            lambda: [
                ((each.metadata.name, phase), float(phase == (each.status.phase or PENDING)))
                for each in reservations()
                for phase in _PHASES
            ],
        ),
        Scraped(
            "scheduler_reservation_resource",
            "[ALPHA] Resource metrics for a reservation, including allocatable, allocated, and utilization with unit.",
            ("type", "name", "resource", "unit"),
            lambda: [amount for each in reservations() for amount in _gauge_values(each)],
        ),
    )


def _gauge_values(reservation: Reservation) -> Iterator[tuple[Sequence[str], float]]:
    name, status = reservation.metadata.name, reservation.status
    for resource, held in status.allocatable.items():
        unit, allocatable = _measured(resource, held)
        taken = status.allocated.get(resource)
        allocated = _measured(resource, taken)[1] if taken is not None else 0.0
        yield ("allocatable", name, resource, unit), allocatable
        yield ("allocated", name, resource, unit), allocated
        if allocatable > 0:
            yield ("utilization", name, resource, "ratio"), allocated / allocatable


def _measured(resource: str, amount: Quantity) -> tuple[str, float]:
    """The unit and the amount in it."""
    if resource == CPU:
        return "core", amount.milli / 1000
    if resource == MEMORY:
        return "Gi", amount.value / _GIBIBYTE
    return "raw", float(amount.value)
