"""What pods request, and what Reservations keep for pods to come, in the units that nodes are compared in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from koordinator.api.pod import Pod
from koordinator.api.quantity import Quantity
from koordinator.api.reservation import AVAILABLE, Reservation
from koordinator.api.resource_names import CPU
from koordinator.model.pod_requests import canonical, pod_requests


def amount(name: str, quantity: Quantity) -> int:
    """In the unit that is counted in: milli-CPU, else whole units, rounded up."""
    return quantity.milli if name == CPU else quantity.value


def requests_of(pod: Pod) -> dict[str, int]:
    """The requests of the spec, in the units of ``amount``."""
    spec = pod.spec
    if not spec.init_containers and spec.resources is None and not spec.overhead:
        # Most pods: nothing but containers counts, and there are many pods.
        total: dict[str, int] = {}
        for container in spec.containers:
            for name, quantity in container.resources.requests.items():
                total[name] = total.get(name, 0) + (quantity.milli if name == CPU else quantity.value)
        return total
    return {name: canonical(name, nanos) for name, nanos in pod_requests(pod, resized=False).items()}


def reserved_requests(reservation: Reservation) -> dict[str, int]:
    """What is reserved and not allocated to a pod, which counts by its own requests; in the units of ``amount``.

    Empty for a Reservation that is not available: it keeps nothing yet, or nothing any more."""
    status = reservation.status
    if status.phase != AVAILABLE:
        return {}
    allocated = {name: amount(name, quantity) for name, quantity in status.allocated.items()}
    return {
        name: max(0, amount(name, quantity) - allocated.get(name, 0)) for name, quantity in status.allocatable.items()
    }


def reservations_by_node(reservations: Iterable[Reservation]) -> Mapping[str, Sequence[Reservation]]:
    """Those that are on a node, by its name."""
    found: dict[str, list[Reservation]] = {}
    for reservation in reservations:
        if reservation.status.node_name:
            found.setdefault(reservation.status.node_name, []).append(reservation)
    return found
