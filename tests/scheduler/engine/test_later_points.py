"""Koordinator's extension points once a node is chosen, and those for reservations, NUMA nodes and controllers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from koordinator.api.pod import Pod
from koordinator.api.reservation import Reservation
from koordinator.api.resource_names import CPU
from koordinator.scheduler.cycle.plugin_services import make_controllers
from koordinator.scheduler.engine.binding_points import ClusterWriter, CycleState, PermitPlugin, Wait
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.framework import PluginError, PreEnqueuePlugin, Reason
from koordinator.scheduler.engine.framework_hooks import (
    Controller,
    ControllerProvider,
    ForgetHandler,
    ReservationFilterPlugin,
    ReservationScorePlugin,
)
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.reservation_points import ReservationPoints
from koordinator.scheduler.engine.view import ReservationInfo
from tests.scheduler.engine.extended import Shared, decide, engine_with
from tests.scheduler.fakes import FirstChoice, describe, make_pod


class Forgetting(ForgetHandler, Shared):
    name = "Forgetting"

    def __init__(self, args: Any, view: Any) -> None:
        super().__init__(args, view)
        self.forgotten: list[str] = []

    def forget_pod(self, pod: PodInfo) -> None:
        self.forgotten.append(pod.key)


def test_forget_handlers_learn_that_a_pod_is_not_assumed_any_more() -> None:
    engine, _, plugin = engine_with(Forgetting)
    result = decide(engine)
    assert isinstance(result, Placement)
    engine.assume(result)
    engine.forget(result)
    assert plugin.forgotten == ["default/p"]


class Gate(PermitPlugin, Shared):
    name = "Gate"

    def permit(self, state: CycleState, pod: PodInfo, node: NodeReference) -> Reason | Wait | None:
        match pod.pod.metadata.labels.get("gate"):
            case "wait":
                return Wait(30)
            case "refuse":
                return Reason("the gate is shut")
            case "raise":
                raise RuntimeError("the gate is broken")
        return None


def permitted(gate: str) -> Mapping[str, float] | Rejection:
    engine, _, _ = engine_with(Gate, point="permit")
    result = decide(engine, labels={"gate": gate})
    assert isinstance(result, Placement)
    engine.assume(result)
    return engine.permit(result)


def test_permit_lets_wait_and_refuses() -> None:
    assert permitted("open") == {}
    assert permitted("wait") == {"Gate": 30}
    refusal = permitted("refuse")
    assert isinstance(refusal, Rejection)
    assert refusal.message == "0/1 nodes are available: 1 the gate is shut."


def test_permit_that_raises_is_an_error_of_its_plugin() -> None:
    with pytest.raises(PluginError, match="the gate is broken"):
        permitted("raise")


class Selective(Gate):
    """Concerns pods with a gate; the label ``broken`` makes it fail to say so."""

    def concerns(self, pod: PodInfo) -> bool:
        if "broken" in pod.pod.metadata.labels:
            raise RuntimeError("it cannot tell")
        return "gate" in pod.pod.metadata.labels


@pytest.mark.parametrize(
    ("labels", "is_called"), [({"gate": "wait"}, True), ({}, False), ({"broken": "", "gate": "wait"}, True)]
)
def test_a_plugin_is_not_called_in_attempts_of_pods_that_do_not_concern_it(
    labels: dict[str, str], is_called: bool
) -> None:
    engine, _, plugin = engine_with(Selective, point="permit")
    result = decide(engine, labels=labels)
    assert isinstance(result, Placement)
    engine.assume(result)
    assert engine.permit(result) == ({"Gate": 30} if is_called else {})
    own = engine.profile.for_pod(result.pod)
    assert (plugin in own.permit) is is_called
    assert own is engine.profile.for_pod(describe(make_pod("other", labels=labels))), "such pods share it"


class Switched(Gate):
    """Concerns all pods once it is on."""

    is_on = False

    def concerns(self, pod: PodInfo) -> bool:
        return self.is_on


def test_a_plugin_says_when_other_pods_concern_it() -> None:
    engine, state, plugin = engine_with(Switched, point="permit")
    pod = describe(make_pod("p"))
    assert plugin not in engine.profile.for_pod(pod).permit
    plugin.is_on = True
    assert plugin not in engine.profile.for_pod(pod).permit, "nobody has said so"
    state.view.concerns_version += 1
    assert plugin in engine.profile.for_pod(pod).permit


class Unconcerned(PreEnqueuePlugin, Shared):
    """Of no pod, and broken."""

    name = "Unconcerned"

    def concerns(self, pod: PodInfo) -> bool:
        return False

    def pre_enqueue(self, pod: Pod) -> Reason | None:
        raise RuntimeError("called for a pod that does not concern it")


class Holding(PreEnqueuePlugin, Shared):
    """Keeps each pod that concerns it, which all do, out of the queue."""

    name = "Holding"

    def concerns(self, pod: PodInfo) -> bool:
        return True

    def pre_enqueue(self, pod: Pod) -> Reason | None:
        return Reason("held")


def test_the_gate_asks_no_plugin_that_the_pod_does_not_concern() -> None:
    engine, state, _ = engine_with(Holding, point="pre_enqueue")
    order = replace(engine.profile.order, pre_enqueue=("Unconcerned", *engine.profile.order.pre_enqueue))
    plugins = {**engine.profile.plugins, "Unconcerned": Unconcerned(None, state.view)}
    engine = Engine(Profile("default-scheduler", plugins, order), state, FirstChoice())
    assert engine.gate(describe(make_pod("p"))) == "Holding: held"


def test_a_pod_that_permit_refuses_leaves_its_node() -> None:
    engine, state, _ = engine_with(Gate, point="permit")
    for gate in ("refuse", "raise"):
        result = decide(engine, labels={"gate": gate})
        assert isinstance(result, Placement)
        engine.assume(result)
        with nullcontext() if gate == "refuse" else pytest.raises(PluginError):
            engine.permit(result)
        assert state.node_of(result.pod.uid) is None


class Reservations(ReservationFilterPlugin, ReservationScorePlugin, Shared):
    """Even CPUs fit, larger reservations and pods of few CPUs are better."""

    name = "Reservations"

    def filter_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> Reason | None:
        return Reason(f"{reservation.name} is odd") if int(reservation.name) % 2 else None

    def score_reservation(self, pod: PodInfo, reservation: ReservationInfo, row: int) -> int:
        return int(reservation.name) // (pod.request.amounts[CPU] // 1000)


@dataclass
class Numbered:
    """A reservation of which the name is a number."""

    name: str
    uid: str = ""
    node_name: str = ""
    reservation: Reservation = field(default_factory=Reservation)
    users: dict[str, PodInfo] = field(default_factory=dict)


def scores(points: ReservationPoints, pod: PodInfo, *names: str) -> list[int]:
    return points.scores([(pod, Numbered(name)) for name in names], 0)


def test_filters_must_agree_and_scores_are_scaled_by_the_largest() -> None:
    engine, _, _ = engine_with(Reservations)
    points, pod = ReservationPoints(engine.profile), describe(make_pod("p"))
    assert points
    assert points.refusal(pod, Numbered("2"), 0) is None
    assert points.refusal(pod, Numbered("3"), 0) == Reason("3 is odd")
    assert scores(points, pod, "0", "3", "7") == [0, 42, 100]
    assert scores(points, pod, "0", "0") == [0, 0]
    assert scores(points, pod) == []
    assert scores(points, pod, "-1", "3", "-7") == [0, 100, 0]


def test_pods_that_a_reservation_may_take_over_are_scored_alike() -> None:
    engine, _, _ = engine_with(Reservations)
    pods = [describe(make_pod(f"p{cpu}", cpu=cpu)) for cpu in ("1", "2", "4")]
    points = ReservationPoints(engine.profile)
    assert points.scores([(pod, Numbered("8")) for pod in pods], 0) == [100, 50, 25]


def test_a_profile_without_such_plugins_has_nobody_to_ask() -> None:
    engine, _, _ = engine_with(Providing)
    assert not ReservationPoints(engine.profile)


class Working:
    name = "work"

    async def run(self) -> None:
        return


class Providing(ControllerProvider, Shared):
    name = "Providing"

    def controllers(self, writer: ClusterWriter) -> Sequence[Controller]:
        return [Working()]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [(["*"], True), ([], False), (["Providing"], True), (["-Providing", "*"], False), (["*", "-Other"], True)],
)
def test_controllers_run_where_the_flag_says_so(selection: list[str], expected: bool) -> None:
    engine, _, _ = engine_with(Providing)
    writer: Any = None
    assert bool(make_controllers([engine.profile], selection, writer, engine.on_error)) is expected


def test_one_instance_of_a_plugin_speaks_for_all_profiles() -> None:
    engine, _, _ = engine_with(Providing)
    writer: Any = None
    found = make_controllers([engine.profile, engine.profile], ["*"], writer, engine.on_error)
    assert [(plugin, controller.name) for plugin, controller in found] == [("Providing", "work")]
