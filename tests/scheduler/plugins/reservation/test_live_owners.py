"""What a Reservation keeps is what its owners, as they are now, leave of it: whatever happens to them, to it and to its
node, a node has requested what can be computed anew from the objects that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from koordinator.api.annotations import RESERVATION_ALLOCATED
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.pod import Container, ContainerStatus, Pod, PodCondition, PodStatus, ResourceRequirements
from koordinator.api.quantity import Quantity
from koordinator.api.reservation import ALIGNED, RESTRICTED, SUCCEEDED, Reservation
from koordinator.model.pod_requests import pod_requests
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.pod_info import PodFacts, PodInfo, make_pod_info
from koordinator.scheduler.engine.row_amounts import CPU
from koordinator.scheduler.plugins.reservation.booking import Booking
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from koordinator.scheduler.plugins.reservation.reserve_pod import reserve_pod
from tests.examples import examples
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster
from tests.scheduler.plugins.reservation.test_free_capacity import OWNER, available, noted

_CAPACITY: Final = 60
_RESERVED: Final = {"once": (3, True, ""), "shared": (4, False, ALIGNED), "restricted": (5, False, RESTRICTED)}
"""Name of a Reservation -> the CPUs that it holds at first, allocateOnce, policy."""
RESIZES: Final = ("unseen", "deferred", "infeasible", "allocated", "done")
"""How far the kubelet has come: it knows nothing of it yet, waits for free capacity, has refused it, has allocated it
and not applied it, has applied it."""


def resized(pod: Pod, cpu: int, state: str) -> Pod:
    """The pod with a request for ``cpu`` CPUs, in one of the states of ``RESIZES``."""
    (container,) = pod.spec.containers
    before, after = container.resources.requests, {**container.resources.requests, "cpu": Quantity.parse(str(cpu))}
    allocated, runs = (after if state in ("allocated", "done") else before), (after if state == "done" else before)
    pending = {"deferred": "Deferred", "infeasible": "Infeasible"}.get(state)
    status = PodStatus(
        phase="Running",
        conditions=[PodCondition(type="PodResizePending", status="True", reason=pending)] if pending else [],
        container_statuses=[
            ContainerStatus(name="main", resources=ResourceRequirements(requests=runs), allocated_resources=allocated)
        ],
    )
    whole = Container(name="main", resources=ResourceRequirements(requests=after))
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=[whole]), status=status)


def record(name: str) -> dict[str, str]:
    return {RESERVATION_ALLOCATED: f'{{"name":"{name}","uid":"uid-{name}"}}'}


class Api:
    """A cluster whose pods come as the watch brings them."""

    def __init__(self, *, has_node: bool = True) -> None:
        self.cluster = Cluster([], ReservationPlugin)
        self._facts = PodFacts(self.info, lambda name: True)
        self.cluster.state.set_node(make_node("b", cpu="0"))
        if has_node:
            self.cluster.state.set_node(make_node("a", cpu=str(_CAPACITY)))

    def info(self, pod: Pod) -> PodInfo:
        return make_pod_info(pod)

    def set_pod(self, pod: Pod, node: str = "a") -> None:
        known = self.cluster.state.placed(pod.metadata.uid)
        self.cluster.state.set_pod(self._facts.of(pod, known.pod if known is not None else None), node)

    def set_reservation(self, made: Reservation) -> None:
        self.cluster.state.set_object(RESERVATIONS, made.metadata.name, made)
        self.set_pod(reserve_pod(made), made.status.node_name)

    def end_reservation(self, made: Reservation, after: Reservation | None) -> None:
        self.cluster.state.set_object(RESERVATIONS, made.metadata.name, after)
        self.cluster.state.remove_pod(made.metadata.uid)

    def booking(self, name: str) -> Booking:
        booking: Booking = self.cluster.view.shared[ReservationPlugin.name].bookings[f"uid-{name}"]
        return booking

    def requested(self, node: str = "a") -> int:
        return int(self.cluster.view.columns.requested[self.cluster.row(node), CPU])

    def decide(self, pod: Pod) -> Placement | Rejection:
        found = self.cluster.engine.decide(self.info(pod), NOW)
        assert isinstance(found, Placement | Rejection)
        return found


def shared_with_an_owner_of_4() -> tuple[Api, Pod]:
    api = Api()
    api.cluster.state.remove_node("b")
    api.cluster.state.set_node(make_node("a", cpu="8"))
    api.set_reservation(available("r", cpu="4", once=False))
    owner = noted(make_pod("o", cpu="4", labels=OWNER), record("r"))
    api.set_pod(owner)
    return api, owner


def test_a_stranger_does_not_get_what_an_owner_has_given_back() -> None:
    api, owner = shared_with_an_owner_of_4()
    api.set_pod(resized(owner, 1, "done"))
    assert (api.requested(), api.booking("r").remaining["cpu"]) == (4000, 3000)
    assert isinstance(api.decide(make_pod("stranger", cpu="5")), Rejection)
    assert isinstance(api.decide(make_pod("stranger", cpu="4")), Placement)
    assert isinstance(api.decide(make_pod("another", cpu="3", labels=OWNER)), Placement)


@pytest.mark.parametrize(
    ("cpu", "state", "requested", "remaining"),
    [
        (1, "unseen", 4, 0),
        (1, "allocated", 4, 0),
        (1, "done", 4, 3),
        (6, "unseen", 6, 0),
        (6, "deferred", 6, 0),
        (6, "infeasible", 4, 0),
        (6, "done", 6, 0),
    ],
)
def test_an_owner_that_is_resized_counts_with_what_it_may_hold(
    cpu: int, state: str, requested: int, remaining: int
) -> None:
    api, owner = shared_with_an_owner_of_4()
    api.set_pod(resized(owner, cpu, state))
    assert (api.requested(), api.booking("r").remaining["cpu"]) == (1000 * requested, 1000 * remaining)


@pytest.mark.parametrize("text", [None, "", "{", '{"name":"r"}', '{"name":"x","uid":"uid-x"}'])
def test_an_owner_whose_record_is_taken_off_holds_nothing_of_it(text: str | None) -> None:
    api, owner = shared_with_an_owner_of_4()
    api.set_pod(noted(owner, {RESERVATION_ALLOCATED: text} if text is not None else {}))
    assert (api.requested(), api.booking("r").remaining["cpu"]) == (8000, 4000)
    api.set_pod(owner)
    assert (api.requested(), api.booking("r").remaining["cpu"]) == (4000, 0)


def test_a_pod_elsewhere_that_names_the_reservation_takes_nothing_of_it() -> None:
    api = Api()
    api.set_reservation(available("r", cpu="4", once=True))
    api.set_pod(noted(make_pod("o", cpu="3"), record("r")), "b")
    assert (api.requested(), api.booking("r").remaining["cpu"], api.booking("r").is_open) == (4000, 4000, True)


# Any order of events.

STEPS: Final = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *("owner", "place", "bind", "forget", "resize", "record", "gone", "resync", "restart"),
                *("reserve", "change", "end", "node", "hide"),
            )
        ),
        st.integers(0, 4),
        st.sampled_from(list(_RESERVED)),
        st.sampled_from(RESIZES),
    ),
    max_size=40,
)


@dataclass
class Objects:
    """The objects that the API has, and the scheduler that is told of each change."""

    api: Api = field(default_factory=Api)
    has_node: bool = True
    pods: dict[str, Pod] = field(default_factory=dict)
    assumed: dict[str, Placement] = field(default_factory=dict)
    reservations: dict[str, Reservation] = field(default_factory=dict)

    def step(self, kind: str, number: int, shape: str, state: str) -> None:
        name, cpu = f"p{number}", number + 1
        match kind:
            case "owner" if name not in self.pods and name not in self.assumed:
                self.set(name, noted(make_pod(name, cpu=str(cpu), labels=OWNER), record(shape)))
            case "place" if name not in self.pods and name not in self.assumed and self.has_node:
                self.place(make_pod(name, cpu=str(cpu), labels=OWNER))
            case "bind" if name in self.assumed:
                pod = self.assumed.pop(name).pod.pod
                use = self.api.cluster.view.allocations.of(ReservationPlugin.name, pod.metadata.uid)
                self.set(name, noted(pod, record(use.name) if use is not None else {}))
            case "forget" if name in self.assumed:
                self.api.cluster.engine.forget(self.assumed.pop(name))
            case "resize" if name in self.pods:
                self.set(name, resized(self.pods[name], (number + len(shape)) % 7 + 1, state))
            case "record" if name in self.pods:
                self.set(name, noted(self.pods[name], record(shape) if state != "done" else {}))
            case "gone" if name in self.pods:
                self.api.cluster.state.remove_pod(self.pods.pop(name).metadata.uid)
            case "resync":
                self.tell(self.api)
            case "restart":
                self.assumed.clear()
                self.api = self.anew()
            case "reserve" if shape not in self.reservations:
                held, once, policy = _RESERVED[shape]
                self.set_reservation(shape, available(shape, cpu=str(held), once=once, policy=policy))
            case "change" if shape in self.reservations:
                made = self.reservations[shape]
                held_now = {**made.status.allocatable, "cpu": Quantity.parse(str(cpu))}
                status = msgspec.structs.replace(made.status, allocatable=held_now)
                self.set_reservation(shape, msgspec.structs.replace(made, status=status))
            case "end" if shape in self.reservations:
                made = self.reservations.pop(shape)
                status = msgspec.structs.replace(made.status, phase=SUCCEEDED)
                over = msgspec.structs.replace(made, status=status) if number % 2 else None
                self.api.end_reservation(made, over)
            case "node" | "hide":
                self.change_node(there=kind == "node", grown=number)

    def set(self, name: str, pod: Pod) -> None:
        self.pods[name] = pod
        self.api.set_pod(pod)

    def set_reservation(self, name: str, made: Reservation) -> None:
        self.reservations[name] = made
        self.api.set_reservation(made)

    def place(self, pod: Pod) -> None:
        found = self.api.decide(pod)
        if isinstance(found, Placement) and found.node.name == "a":
            assert self.api.cluster.engine.assume(found) is None
            self.assumed[pod.metadata.name] = found

    def change_node(self, *, there: bool, grown: int) -> None:
        if there:
            self.api.cluster.state.set_node(make_node("a", cpu=str(_CAPACITY + grown)))
        else:
            self.api.cluster.state.remove_node("a")
            # What is only assumed is not bound to a node that is gone.
            for placement in self.assumed.values():
                self.api.cluster.engine.forget(placement)
            self.assumed.clear()
        self.has_node = there

    def tell(self, api: Api) -> None:
        for pod in self.pods.values():
            api.set_pod(pod)
        for made in self.reservations.values():
            api.set_reservation(made)

    def anew(self) -> Api:
        api = Api(has_node=self.has_node)
        self.tell(api)
        return api

    # What has to hold.

    def check(self) -> None:
        if not self.has_node:
            return
        present = self.present()
        rest = 0
        for name, made in self.reservations.items():
            taken = sum(_cpu(pod) for pod, taken_from in present.values() if taken_from == f"uid-{name}")
            left = max(0, made.status.allocatable["cpu"].milli - taken)
            assert self.api.booking(name).remaining["cpu"] == left
            assert self.api.booking(name).is_open == (not _RESERVED[name][1] or not taken)
            rest += left
        assert self.api.requested() == sum(_cpu(pod) for pod, _ in present.values()) + rest
        if not self.assumed:
            ours, fresh = self.api.cluster, self.anew().cluster
            mine, theirs = (each.view.columns.numbers[each.row("a")] for each in (ours, fresh))
            assert (mine.requested, mine.counted) == (theirs.requested, theirs.counted)

    def present(self) -> dict[str, tuple[Pod, str]]:
        """Every pod on the node with the uid of the Reservation that it takes from, or ""."""
        found: dict[str, tuple[Pod, str]] = {}
        for pod in self.pods.values():
            text = pod.metadata.annotations.get(RESERVATION_ALLOCATED)
            found[pod.metadata.uid] = pod, msgspec.json.decode(text)["uid"] if text else ""
        for placement in self.assumed.values():
            uid = placement.pod.uid
            use = self.api.cluster.view.allocations.of(ReservationPlugin.name, uid)
            found[uid] = placement.pod.pod, use.uid if use is not None else ""
        return found


def _cpu(pod: Pod) -> int:
    return pod_requests(pod)["cpu"] // 10**6


@settings(max_examples=examples(100))
@given(STEPS)
@example([("owner", 3, "shared", ""), ("resize", 3, "restricted", "done")])
@example([("owner", 3, "shared", ""), ("end", 0, "shared", ""), ("hide", 0, "", ""), ("reserve", 0, "shared", "")])
@example([("place", 1, "", ""), ("bind", 1, "", ""), ("record", 1, "once", "done")])
def test_a_node_has_requested_what_the_live_objects_say(steps: Sequence[tuple[str, int, str, str]]) -> None:
    objects = Objects()
    for shape in _RESERVED:
        objects.step("reserve", 0, shape, "")
    for kind, number, shape, state in steps:
        objects.step(kind, number, shape, state)
        objects.check()
