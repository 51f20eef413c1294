"""Devices that Reservations hold: who gets them, and that they count once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from koordinator.api.annotations import DEVICE_ALLOCATED
from koordinator.api.kinds import RESERVATIONS
from koordinator.api.labels import RESERVATION_IGNORED
from koordinator.api.pod import PodTemplateSpec
from koordinator.api.reservation import ALIGNED, RESTRICTED, Reservation, ReservationStatus
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.features import RESIZE_POD
from koordinator.scheduler.plugins.device_share.allocation import HeldDevice, allocation_annotation, allocations_of
from koordinator.scheduler.plugins.reservation.plugin import ReservationPlugin
from koordinator.scheduler.plugins.reservation.reserve_pod import reserve_pod
from tests.examples import examples
from tests.scheduler.plugins.device_share.machines import Machines, device, gpu, make_device_pod
from tests.scheduler.plugins.reservation.test_free_capacity import OWNER, available

WHOLE = (
    ("koordinator.sh/gpu-core", 100),
    ("koordinator.sh/gpu-memory", 16 * 2**30),
    ("koordinator.sh/gpu-memory-ratio", 100),
)
GPUS = 4


def holding(name: str, *minors: int, policy: str = "") -> Reservation:
    """One on node a that holds these GPUs."""
    found = available(name, "100m", once=False, policy=policy)
    template = make_device_pod("template", gpu=100 * len(minors))
    held = allocations_of({"gpu": [HeldDevice(minor, WHOLE) for minor in minors]})
    annotations = {DEVICE_ALLOCATED: allocation_annotation(held)}
    amounts = {**found.status.allocatable, **template.spec.containers[0].resources.requests}
    return replace(
        found,
        metadata=replace(found.metadata, annotations=annotations),
        spec=replace(found.spec, template=PodTemplateSpec(spec=template.spec)),
        status=replace(found.status, allocatable=amounts),
    )


def machines_with(*reservations: Reservation, located: bool = False) -> Machines:
    """Four GPUs, of which it is known where they are if they are ``located``."""
    machines = Machines(
        device(*[gpu(minor, numa=0 if located else None) for minor in range(GPUS)]),
        more=(ReservationPlugin,),
    )
    for reservation in reservations:
        machines.state.set_object(RESERVATIONS, reservation.metadata.name, reservation)
        machines.state.set_pod(machines.info(reserve_pod(reservation)), "a")
    return machines


def owner(name: str, gpus: int, **labels: str) -> Any:
    return make_device_pod(name, gpu=100 * gpus, labels={**OWNER, **labels})


def test_others_get_what_no_reservation_holds() -> None:
    machines = machines_with(holding("r", 0, 1))
    machines.place(make_device_pod("p", gpu=200))
    assert machines.minors("p") == [2, 3]
    assert "Insufficient gpu devices" in machines.message(make_device_pod("q", gpu=100))


@pytest.mark.parametrize("located", [False, True])
def test_an_owner_gets_what_its_reservation_holds(located: bool) -> None:
    machines = machines_with(holding("r", 2, 3), located=located)
    machines.place(owner("o", 1))
    assert machines.minors("o") == [2]
    machines.place(owner("o2", 1))
    assert machines.minors("o2") == [3]


def test_what_an_owner_has_taken_is_still_not_free_for_others() -> None:
    machines = machines_with(holding("r", 0, 1, 2, 3))
    machines.place(owner("o", 2))
    assert "Insufficient gpu devices" in machines.message(make_device_pod("q", gpu=100))


@pytest.mark.parametrize(("policy", "fits"), [(ALIGNED, True), (RESTRICTED, False)])
def test_an_aligned_reservation_is_filled_up_by_the_node_and_a_restricted_one_is_not(policy: str, fits: bool) -> None:
    machines = machines_with(holding("r", 0, policy=policy))
    result = machines.decide(owner("o", 2))
    assert isinstance(result, Placement)
    assert machines.engine.assume(result) is None
    # The owner of the restricted one takes from the node alone.
    assert (0 in machines.minors("o")) is fits


def test_an_owner_that_takes_from_the_node_alone_leaves_its_reservation_what_it_holds() -> None:
    machines = machines_with(holding("r", 0, policy=RESTRICTED))
    machines.place(owner("o", 3))
    assert machines.minors("o") == [1, 2, 3]


def test_who_ignores_reservations_gets_their_devices() -> None:
    machines = machines_with(holding("r", 0, 1, 2, 3))
    machines.place(make_device_pod("p", gpu=100, labels={**OWNER, RESERVATION_IGNORED: "true"}))
    assert machines.minors("p") == [0]


def test_with_its_gate_a_reservation_takes_all_units_of_what_it_is_allocated() -> None:
    machines = machines_with()
    machines.view.gates = frozenset({RESIZE_POD})
    found = replace(holding("r", 0), status=ReservationStatus())
    found = replace(found, metadata=replace(found.metadata, annotations={}))
    machines.state.set_object(RESERVATIONS, "r", found)
    placement = machines.place(reserve_pod(found))
    names = set(placement.pod.request.amounts)
    assert "koordinator.sh/gpu-memory" in names


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["owner", "other", "ignoring", "delete", "reserve", "cancel"]),
        st.integers(0, 4),
        st.integers(1, 2),
    ),
    max_size=25,
)


@settings(max_examples=examples(40), deadline=None)
@given(steps=STEPS, policy=st.sampled_from(["", ALIGNED, RESTRICTED]))
def test_whatever_happens_no_gpu_is_given_out_twice(steps: list[tuple[str, int, int]], policy: str) -> None:
    machines = machines_with()
    for step, number, gpus in steps:
        name = f"p{number}"
        match step:
            case "delete":
                machines.state.remove_pod(f"uid-{name}")
            case "reserve" if "uid-r" not in machines.view.pods_on[0]:
                free = [minor for minor in range(GPUS) if not machines.plugin.nodes[0].used.get("gpu", {}).get(minor)]
                if free[:gpus]:
                    found = holding("r", *free[:gpus], policy=policy)
                    machines.state.set_object(RESERVATIONS, "r", found)
                    machines.state.set_pod(machines.info(reserve_pod(found)), "a")
            case "cancel":
                machines.state.set_object(RESERVATIONS, "r", None)
                machines.state.remove_pod("uid-r")
            case "owner" | "other" | "ignoring" if machines.state.placed(f"uid-{name}") is None:
                labels = (
                    {}
                    if step == "other"
                    else {**OWNER, **({RESERVATION_IGNORED: "true"} if step == "ignoring" else {})}
                )
                result = machines.decide(make_device_pod(name, gpu=100 * gpus, labels=labels))
                if isinstance(result, Placement):
                    machines.engine.assume(result)
            case _:
                continue
        pods = [uid for uid in machines.view.pods_on[0] if uid != "uid-r"]
        taken = [each.minor for uid in pods for _, devices in machines.held(uid) for each in devices]
        assert len(taken) == len(set(taken))
    assert not machines.differences
