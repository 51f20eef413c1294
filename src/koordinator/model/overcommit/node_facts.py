"""What overcommitment needs to know of a node, worked out once for each version of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from koordinator.api import annotations as annotation_keys
from koordinator.api.codec import DecodeError
from koordinator.api.node import Node
from koordinator.api.node_reservation import NodeReservation, count_cpus
from koordinator.model.overcommit.amounts import NOTHING, Amounts, cpu_and_memory
from koordinator.model.slo_configuration.documents import read_given, read_object


@dataclass(frozen=True, slots=True)
class NodeFacts:
    name: str
    capacity: Amounts
    reserved: Amounts
    """Kept for programs outside Kubernetes: the larger of what the kubelet keeps and what the annotation says."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    has_status: bool = True
    """Whether a kubelet has written what the node has; before that there is nothing to add to."""
    is_ready: bool = True
    """Whether the node is Ready, or says nothing of it."""
    ready_since: datetime | None = None
    """Since when it is as ``is_ready`` says."""
    problem: str = ""
    """What is wrong with the reservation annotation, which then reserves nothing."""


def node_facts(node: Node) -> NodeFacts:
    capacity, allocatable = cpu_and_memory(node.status.capacity), cpu_and_memory(node.status.allocatable)
    kept = Amounts(capacity.cpu - allocatable.cpu, capacity.memory - allocatable.memory)
    annotated, problem = NOTHING, ""
    text = node.metadata.annotations.get(annotation_keys.NODE_RESERVATION)
    if text is not None:
        try:
            annotated = reservation_amounts(text)
        except (DecodeError, ValueError) as error:
            problem = f"metadata.annotations[{annotation_keys.NODE_RESERVATION}] reserves nothing: {error}"
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    return NodeFacts(
        name=node.metadata.name,
        capacity=capacity,
        reserved=kept.at_least(NOTHING).at_least(annotated),
        labels=node.metadata.labels,
        annotations=node.metadata.annotations,
        has_status=bool(node.status.allocatable) and bool(node.status.capacity),
        is_ready=ready is None or ready.status == "True",
        ready_since=None if ready is None else ready.last_transition_time,
        problem=problem,
    )


def reservation_amounts(text: str) -> Amounts:
    """What the annotation keeps: a list of CPUs goes before an amount of CPU. Raises DecodeError and ValueError.

    People write it, so that it is read as all configuration is: names match whatever their case.
    """
    reservation = read_given(read_object(text), NodeReservation).values
    amounts = cpu_and_memory(reservation.resources)
    if not reservation.reserved_cpus:
        return amounts
    return Amounts(1000 * count_cpus(reservation.reserved_cpus), amounts.memory)
