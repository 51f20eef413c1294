"""What owners take of reservations that overlap is right after every event, checked by a ledger made from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.annotations import RESERVATION_ALLOCATED
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.pod import Pod
from koordinator.api.reservation import ALIGNED, FAILED, RESTRICTED, SUCCEEDED, Reservation
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.row_amounts import CPU
from koordinator.scheduler.plugins.reservation.cache import ReservationCache
from koordinator.scheduler.plugins.reservation.controller import Facts, status_change
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from koordinator.scheduler.plugins.reservation.pod_points import Use
from koordinator.scheduler.plugins.reservation.reserve_pod import reserve_pod
from tests.examples import examples
from tests.scheduler.fakes import describe, make_node, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster
from tests.scheduler.plugins.reservation.test_free_capacity import available, noted, owner

_CAPACITY: Final = 30
_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
SHAPES: Final = {
    "once": (3, True, ""),
    "aligned": (4, False, ALIGNED),
    "restricted": (5, False, RESTRICTED),
}
"""Name of a Reservation -> the CPUs it holds, allocateOnce, policy. Every owner matches all three."""
KINDS: Final = (
    "create",
    "delete",
    "expire",
    "succeed",
    "place",
    "bind",
    "forget",
    "bound",
    "plain",
    "finish",
    "restart",
)
STEPS: Final = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 4), st.sampled_from(list(SHAPES))), max_size=40
)


@dataclass
class Taking:
    """A pod on the node, and the uid of the Reservation that it takes from; none for a pod beside them."""

    pod: Pod
    cpu: int
    uid: str
    placement: Placement | None = None
    """While it is only assumed."""


@dataclass
class History:
    """What has happened, as plain facts, beside the program that has to refresh with it."""

    cluster: Cluster = field(default_factory=lambda: History.empty())
    pods: dict[str, Taking] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    """Those that are there and not over, by name."""

    @staticmethod
    def empty() -> Cluster:
        return Cluster([make_node("a", cpu=str(_CAPACITY))], ReservationPlugin)

    @property
    def cache(self) -> ReservationCache:
        cache: ReservationCache = self.cluster.view.shared[ReservationPlugin.name]
        return cache

    def taken(self, name: str) -> int:
        """The ledger: CPUs that owners take of the Reservation, summed anew."""
        return sum(each.cpu for each in self.pods.values() if each.uid == f"uid-{name}")

    def requested(self) -> int:
        """The ledger: CPUs of pods and what Reservations keep free beside them."""
        kept = sum(max(0, SHAPES[name][0] - self.taken(name)) for name in self.reservations)
        return sum(each.cpu for each in self.pods.values()) + kept

    # Events.

    def step(self, kind: str, number: int, shape: str) -> None:
        name, cpu = f"p{number}", number + 1
        match kind:
            case "create" if shape not in self.reservations:
                self.create(shape)
            case "delete" if shape in self.reservations:
                self.end(shape, None)
            case "expire" | "succeed" if shape in self.reservations:
                self.end(shape, FAILED if kind == "expire" else SUCCEEDED)
            case "place" if name not in self.pods:
                self.place(name, cpu)
            case "bind" if name in self.pods:
                self.bind(name)
            case "forget" if name in self.pods:
                self.forget(name)
            case "bound" if name not in self.pods and shape in self.reservations:
                self.bound(name, cpu, f"uid-{shape}")
            case "plain" if name not in self.pods:
                self.bound(name, cpu, "")
            case "finish" if name in self.pods and self.pods[name].placement is None:
                self.cluster.state.remove_pod(f"uid-{name}")
                del self.pods[name]
            case "restart":
                self.restart()

    def create(self, shape: str) -> None:
        cpu, once, policy = SHAPES[shape]
        if self.requested() + max(0, cpu - self.taken(shape)) > _CAPACITY:
            return
        made = available(shape, cpu=str(cpu), once=once, policy=policy)
        self.reservations[shape] = made
        self.show(made)

    def show(self, made: Reservation) -> None:
        self.cluster.state.set_object(RESERVATIONS, made.metadata.name, made)
        self.cluster.bound(reserve_pod(made), "a")

    def end(self, shape: str, phase: str | None) -> None:
        made = self.reservations.pop(shape)
        over = None
        if phase is not None:
            over = msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, phase=phase))
        self.cluster.state.set_object(RESERVATIONS, shape, over)
        self.cluster.state.remove_pod(made.metadata.uid)

    def place(self, name: str, cpu: int) -> None:
        pod = owner(name, cpu=str(cpu))
        placement = self.cluster.engine.decide(describe(pod), NOW)
        if not isinstance(placement, Placement):
            return
        before = {shape: self.taken(shape) for shape in self.reservations}
        assert self.cluster.engine.assume(placement) is None
        use = self.cluster.view.allocations.of(ReservationPlugin.name, f"uid-{name}")
        self.pods[name] = Taking(pod, cpu, use.uid if isinstance(use, Use) else "", placement)
        if isinstance(use, Use):
            held, once, policy = SHAPES[use.name]
            assert not (once and before[use.name]), "a second owner of a Reservation that has one owner"
            assert policy != RESTRICTED or before[use.name] + cpu <= held
        assert self.requested() <= _CAPACITY

    def bind(self, name: str) -> None:
        taking = self.pods[name]
        if taking.placement is None:
            return
        record = {RESERVATION_ALLOCATED: f'{{"name":"{taking.uid[4:]}","uid":"{taking.uid}"}}'} if taking.uid else {}
        taking.pod, taking.placement = noted(taking.pod, record), None
        self.cluster.bound(taking.pod, "a")

    def forget(self, name: str) -> None:
        placement = self.pods[name].placement
        if placement is not None:
            self.cluster.engine.forget(placement)
            del self.pods[name]

    def bound(self, name: str, cpu: int, uid: str) -> None:
        """Another scheduler placed it."""
        kept = self.requested()
        pod = make_pod(name, cpu=str(cpu))
        record = {RESERVATION_ALLOCATED: f'{{"name":"{uid[4:]}","uid":"{uid}"}}'} if uid else {}
        self.pods[name] = Taking(noted(pod, record), cpu, uid)
        if max(kept, self.requested()) > _CAPACITY:
            del self.pods[name]
            return
        self.cluster.bound(self.pods[name].pod, "a")

    def restart(self) -> None:
        """What was only assumed is lost; the lists arrive in any order, here: pods before Reservations."""
        self.cluster = self.empty()
        self.pods = {name: each for name, each in self.pods.items() if each.placement is None}
        for each in self.pods.values():
            self.cluster.bound(each.pod, "a")
        for made in self.reservations.values():
            self.show(made)

    # What has to hold.

    def check(self) -> None:
        assert self.cluster.view.columns.requested[self.cluster.row("a"), CPU] == 1000 * self.requested()
        assert set(self.cache.bookings) == {f"uid-{name}" for name in self.reservations}
        for name in self.reservations:
            booking = self.cache.bookings[f"uid-{name}"]
            assert booking.allocated["cpu"] == 1000 * self.taken(name)
            assert booking.remaining["cpu"] == 1000 * max(0, SHAPES[name][0] - self.taken(name))
            assert booking.is_open == (not SHAPES[name][1] or not self.taken(name))

    def check_status(self) -> None:
        """What is written of owners that the API has."""
        for name, made in self.reservations.items():
            owners = [each for each in self.pods.values() if each.uid == f"uid-{name}" and each.placement is None]
            change = status_change(made, Facts(owners=[each.pod for each in owners]), _BEGIN) or {}
            cpu = sum(each.cpu for each in owners)
            assert change.get("allocated", {}).get("cpu") == (str(cpu) if cpu else None)
            assert change.get("phase") == (SUCCEEDED if owners and SHAPES[name][1] else None)


@settings(max_examples=examples(100))
@given(STEPS)
def test_what_owners_take_is_what_a_ledger_says(steps: Sequence[tuple[str, int, str]]) -> None:
    history = History()
    for kind, number, shape in steps:
        history.step(kind, number, shape)
        history.check()


@settings(max_examples=examples(30))
@given(STEPS)
def test_what_is_written_of_owners_is_what_a_ledger_says(steps: Sequence[tuple[str, int, str]]) -> None:
    history = History()
    for kind, number, shape in steps:
        history.step(kind, number, shape)
    history.check_status()
