"""Reservations that their authors have to mend: who is told what, and that the others are looked at all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec
import pytest

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.kinds import RESERVATIONS, Kind
from koordinator.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from koordinator.api.reservation import Reservation, ReservationOwner, ReservationStatus
from koordinator.scheduler.plugins.reservation.booking import faults
from koordinator.scheduler.plugins.reservation.controller import ReservationController
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from tests.scheduler.ground.clusters import NOW, Cluster
from tests.scheduler.plugins.reservation.test_free_capacity import available, cluster_with


class NotingWriter:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, Mapping[str, Any]]] = []

    def now(self) -> datetime:
        return NOW

    def start(self, work: Coroutine[Any, Any, None], what: str) -> None:
        asyncio.run(work)

    async def until(
        self, condition: Callable[[], bool], seconds: float, objects: Callable[[], Iterable[tuple[Kind[Any], str]]]
    ) -> bool:
        return condition()

    async def patch(
        self, kind: Kind[Any], name: str, namespace: str, patch: Mapping[str, Any], subresource: str = ""
    ) -> None:
        self.patches.append((name, patch["status"]))

    async def delete(self, kind: Kind[Any], metadata: ObjectMeta) -> None:
        raise AssertionError("nothing is to be deleted here")

    def warn(self, text: str) -> None:
        raise AssertionError(text)


def changed(**spec: Any) -> Reservation:
    found = msgspec.structs.replace(available(), status=ReservationStatus())
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, **spec))


def with_metadata(**metadata: Any) -> Reservation:
    found = available()
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, **metadata))


BROKEN = LabelSelector(match_expressions=[LabelSelectorRequirement(key="app", operator="Near", values=["web"])])


@pytest.mark.parametrize(
    ("reservation", "start"),
    [
        (changed(template=None), "spec.template is missing"),
        (changed(owners=[]), "spec.owners is empty"),
        (changed(owners=[ReservationOwner(label_selector=BROKEN)]), "spec.owners[0].labelSelector: "),
        (
            with_metadata(annotations={annotation_keys.RESERVATION_RESIZE_ALLOCATABLE: "{"}),
            f"annotation {annotation_keys.RESERVATION_RESIZE_ALLOCATABLE}: ",
        ),
        (
            with_metadata(annotations={annotation_keys.RESERVATION_RESTRICTED_OPTIONS: '{"resources": 1}'}),
            f"annotation {annotation_keys.RESERVATION_RESTRICTED_OPTIONS}: ",
        ),
        (
            with_metadata(labels={label_keys.RESERVATION_ORDER: "first"}),
            f"label {label_keys.RESERVATION_ORDER}: 'first' is not a whole number",
        ),
    ],
)
def test_each_fault_names_its_field(reservation: Reservation, start: str) -> None:
    (text,) = faults(reservation)
    assert text.startswith(start)


def test_a_reservation_as_it_should_be_has_none() -> None:
    assert faults(available()) == []


class Controlled:
    """The controller on a cluster with ``reservations``, and what it writes and reports."""

    def __init__(self, *reservations: Reservation) -> None:
        self.cluster: Cluster = cluster_with()
        for each in reservations:
            self.set(each)
        self.writer = NotingWriter()
        self.reported: list[tuple[str, str]] = []
        self.controller = ReservationController(
            self.cluster.view.shared[ReservationPlugin.name],
            self.cluster.view,
            self.writer,  # type: ignore[arg-type]
            lambda reservation, text: self.reported.append((reservation.metadata.name, text)),
            kept=None,
            cleans_every=60,
        )

    def set(self, reservation: Reservation) -> None:
        self.cluster.state.set_object(RESERVATIONS, reservation.metadata.name, reservation)

    def look(self) -> None:
        self.controller.reconcile_all()


def test_the_author_is_notified_once_by_event_and_condition() -> None:
    controlled = Controlled(changed(owners=[]))
    controlled.look()
    controlled.look()
    assert [name for name, _ in controlled.reported] == ["r"]
    name, status = controlled.writer.patches[0]
    (condition,) = status["conditions"]
    assert (name, condition["reason"]) == ("r", "Unschedulable")
    assert condition["message"].startswith("spec.owners is empty")


def test_a_fault_that_comes_back_is_reported_again() -> None:
    controlled = Controlled(changed(owners=[]))
    for reservation in (changed(), changed(owners=[])):
        controlled.look()
        controlled.set(reservation)
    controlled.look()
    assert len(controlled.reported) == 2


def test_the_next_reservation_is_looked_at_all_the_same() -> None:
    other = changed(template=None)
    second = msgspec.structs.replace(other, metadata=ObjectMeta(name="second", uid="uid-second"))
    controlled = Controlled(changed(owners=[]), second)
    controlled.look()
    assert {name for name, _ in controlled.reported} == {"r", "second"}
