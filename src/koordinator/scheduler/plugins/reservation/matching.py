"""Decides which Reservations a pod may take from: owners, affinity, taints, exact amounts.

Each failed check is counted, so that the pod's message can state what kept it from the Reservations that it owns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.codec import DecodeError, decode
from koordinator.api.meta import ObjectMeta, ObjectReference, WireStruct
from koordinator.api.node import Node, Taint
from koordinator.api.pod import NodeSelectorTerm, Pod, Toleration
from koordinator.api.reservation import Reservation, ReservationControllerReference, ReservationOwner
from koordinator.model.label_selector import SelectorError, compile_selector
from koordinator.model.node_selector import term_predicate
from koordinator.model.tolerations import NO_SCHEDULE, tolerated
from koordinator.scheduler.engine.pod_info import PodInfo

_UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
_MEMO: Final = "Reservation/requirements"
_Owns = Callable[[Pod], bool]


class _RequiredTerms(WireStruct):
    reservation_selector_terms: Sequence[NodeSelectorTerm] = ()


class ReservationAffinity(WireStruct):
    """The annotation ``reservation-affinity``: the pod must take from a matching Reservation."""

    name: str = ""
    required_during_scheduling_ignored_during_execution: _RequiredTerms | None = None
    reservation_selector: dict[str, str] = {}
    tolerations: Sequence[Toleration] = ()


class _ExactMatch(WireStruct):
    resource_names: Sequence[str] = ()


class Mismatch(Enum):
    """Why a Reservation is not available to one of its owners; counted in the pod's message, in this order."""

    NAME = "didn't match the requested reservation name"
    AFFINITY = "didn't match affinity rules"
    UNSCHEDULABLE = "is unschedulable"
    NOT_EXACT = "is not exact matched"
    TAINTS = "had untolerated taint"


class ReservationRequirements(msgspec.Struct, frozen=True):
    """What a pod requires of Reservations. ``problem``: the error in it, if it cannot be decoded."""

    affinity: ReservationAffinity | None = None
    exact: tuple[str, ...] = ()
    ignored: bool = False
    problem: str = ""


def requirements_of(pod: PodInfo) -> ReservationRequirements:
    """What the pod requires; read once."""
    found: ReservationRequirements | None = pod.memo.get(_MEMO)
    if found is None:
        found = pod.memo[_MEMO] = _read(pod.pod)
    return found


def _read(pod: Pod) -> ReservationRequirements:
    """Read the requirements from labels and annotations of the pod."""
    annotations = pod.metadata.annotations
    affinity: ReservationAffinity | None = None
    exact: tuple[str, ...] = ()
    key = annotation_keys.RESERVATION_AFFINITY
    try:
        if key in annotations:
            affinity = decode(annotations[key].encode(), ReservationAffinity)
        key = annotation_keys.EXACT_MATCH_RESERVATION
        if annotations.get(key):
            exact = tuple(decode(annotations[key].encode(), _ExactMatch).resource_names)
    except DecodeError as error:
        return ReservationRequirements(problem=f"annotation {key}: {error}")
    return ReservationRequirements(affinity, exact, ignores_reservations(pod))


def requirements_key(pod: Pod) -> Hashable:
    """Equal for pods with equal requirements."""
    annotations = pod.metadata.annotations
    return (
        annotations.get(annotation_keys.RESERVATION_AFFINITY),
        annotations.get(annotation_keys.EXACT_MATCH_RESERVATION),
        ignores_reservations(pod),
    )


def ignores_reservations(pod: Pod) -> bool:
    """Whether the pod takes what is reserved for others."""
    return pod.metadata.labels.get(label_keys.RESERVATION_IGNORED) == "true"


def is_required(pod: Pod) -> bool:
    """Whether the reserve pod goes only where its Reservation takes over a pod."""
    return pod.metadata.labels.get(label_keys.PRE_ALLOCATION_REQUIRED) == "true"


def needs_reservation(pod: Pod) -> bool:
    """Whether the pod must take from a Reservation, or, as a reserve pod, must take over a running pod."""
    return is_required(pod) or annotation_keys.RESERVATION_AFFINITY in pod.metadata.annotations


class Owners:
    """The owners of a Reservation. Raises SelectorError for an invalid selector."""

    def __init__(self, owners: Sequence[ReservationOwner]) -> None:
        self._entries = [_owns(each) for each in owners]
        self._choices = [_index_choices(each) for each in owners]

    def index_keys(self, size: Callable[[Hashable], int]) -> frozenset[Hashable]:
        """Keys of which each pod that owns the Reservation has one, see ``pod_keys``; chosen so that the fewest
        Reservations share them, by ``size``, which may change: to be called once."""
        chosen = [min(choices, key=lambda keys: sum(map(size, keys))) for choices in self._choices]
        return frozenset().union(*chosen)

    def include(self, pod: Pod) -> bool:
        return any(owns(pod) for owns in self._entries)


def owner_faults(owners: Iterable[ReservationOwner], path: str, what: str) -> list[str]:
    """The errors of the selectors of ``owners``, which are at ``path``; ``what`` no pod owns because of them."""
    found = []
    for index, owner in enumerate(owners):
        try:
            Owners([owner])
        except SelectorError as error:
            found.append(f"{path}[{index}].labelSelector: {error}; no pod owns {what} until it is mended")
    return found


def pod_keys(pod: Pod) -> list[Hashable]:
    """The keys of owners under which a pod has to be looked up."""
    metadata = pod.metadata
    return [
        None,
        ("uid", metadata.uid),
        ("name", metadata.name),
        *(("controller", owner.uid) for owner in metadata.owner_references),
        *(("label", *item) for item in metadata.labels.items()),
        *(("key", key) for key in metadata.labels),
    ]


def mismatch(
    reservation: Reservation,
    pod: Pod,
    requirements: ReservationRequirements,
    node: Node | None,
    amounts: tuple[Mapping[str, int], Mapping[str, int]],
) -> tuple[Mismatch, str] | None:
    """Why a Reservation is not available to a pod that owns it, with the taint if that is why; None if it is available.

    ``node`` is that of the Reservation, whose labels count too, unless None. ``amounts``: what the Reservation holds,
    and what the pod requests."""
    affinity = requirements.affinity
    if affinity is not None and affinity.name:
        if affinity.name != reservation.metadata.name:
            return Mismatch.NAME, ""
        return _inexact(requirements, *amounts)
    tolerations = affinity.tolerations if affinity is not None else ()
    is_closed = reservation.spec.unschedulable or reservation.metadata.deletion_timestamp is not None
    if is_closed and not tolerated(tolerations, _UNSCHEDULABLE):
        return Mismatch.UNSCHEDULABLE, ""
    if affinity is not None:
        for taint in reservation.spec.taints:
            if not tolerated(tolerations, taint):
                return Mismatch.TAINTS, f"{{{taint.key}: {taint.value}}}"
        if not _selects(affinity, reservation, node):
            return Mismatch.AFFINITY, ""
    return _inexact(requirements, *amounts)


def _inexact(
    requirements: ReservationRequirements, held: Mapping[str, int], requested: Mapping[str, int]
) -> tuple[Mismatch, str] | None:
    for name in requirements.exact:
        ours, theirs = requested.get(name), held.get(name)
        if ours is None and theirs is None:
            return None
        if ours != theirs:
            return Mismatch.NOT_EXACT, ""
    return None


def _selects(affinity: ReservationAffinity, reservation: Reservation, node: Node | None) -> bool:
    labels = {**(node.metadata.labels if node is not None else {}), **reservation.metadata.labels}
    if any(labels.get(key) != value for key, value in affinity.reservation_selector.items()):
        return False
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is None:
        return True
    # The terms are node selector terms, and a Reservation is matched as a node of its name would be.
    seen = Node(metadata=ObjectMeta(name=reservation.metadata.name, labels=labels))
    predicates = [term_predicate(term) for term in required.reservation_selector_terms]
    return any(matches is not None and matches(seen) for matches in predicates)


def _index_choices(owner: ReservationOwner) -> Sequence[Sequence[Hashable]]:
    """The conditions of the entry that can be looked up, each as the keys of which a pod must have one; the key None,
    which every pod has, where there are none."""
    found: list[Sequence[Hashable]] = []
    if owner.object is not None and owner.object.uid:
        found.append([("uid", owner.object.uid)])
    elif owner.object is not None and owner.object.name:
        found.append([("name", owner.object.name)])
    if owner.controller is not None and owner.controller.uid:
        found.append([("controller", owner.controller.uid)])
    if owner.label_selector is not None:
        found += [[("label", *item)] for item in sorted(owner.label_selector.match_labels.items())]
        for each in owner.label_selector.match_expressions:
            if each.operator == "In":
                found.append([("label", each.key, value) for value in dict.fromkeys(each.values)])
            elif each.operator == "Exists":
                found.append([("key", each.key)])
    return found or [[None]]


def _owns(owner: ReservationOwner) -> _Owns:
    selector = compile_selector(owner.label_selector) if owner.label_selector is not None else None

    def owns(pod: Pod) -> bool:
        if owner.object is not None and not _is_object(owner.object, pod):
            return False
        if owner.controller is not None and not _is_controlled(owner.controller, pod):
            return False
        return selector is None or selector.matches(pod.metadata.labels)

    return owns


def _is_object(reference: ObjectReference, pod: Pod) -> bool:
    metadata = pod.metadata
    return (
        reference.uid in ("", metadata.uid)
        and reference.name in ("", metadata.name)
        and reference.namespace in ("", metadata.namespace)
        and reference.api_version in ("", "v1")
    )


def _is_controlled(reference: ReservationControllerReference, pod: Pod) -> bool:
    if reference.namespace not in ("", pod.metadata.namespace):
        return False
    return any(
        reference.controller in (None, owner.controller)
        and reference.uid in ("", owner.uid)
        and reference.name in ("", owner.name)
        and reference.kind in ("", owner.kind)
        and reference.api_version in ("", owner.api_version)
        for owner in pod.metadata.owner_references
    )
