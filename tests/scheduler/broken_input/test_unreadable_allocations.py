"""What pods hold by a record that nobody can read stays closed to others, and the pod's author reads why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from koordinator.api import annotations as keys
from koordinator.api.codec import to_document
from koordinator.api.kinds import DEVICES, NODE_RESOURCE_TOPOLOGIES, PODS, RESERVATIONS
from koordinator.scheduler.explain import explain_node
from tests.scheduler.broken_input.test_broken_objects import healthy, healthy_pod, running_beside, two_nodes
from tests.scheduler.plugins.reservation.test_free_capacity import available
from tests.scheduler.running_scheduler import RunningScheduler

_NODE: Final = "broken"
_GPU_OF: Final = '{"gpu":[{"minor":%d,"resources":{"koordinator.sh/gpu-core":"100"}}]}'
_BOUND: Final = {"koordinator.sh/qosClass": "LSR"}


@dataclass(frozen=True)
class Case:
    plugin: str
    annotation: str
    broken: str
    readable: str
    gpu: bool = False

    def running(self, text: str) -> dict[str, Any]:
        """A pod that another scheduler has placed; it leaves room for another one beside it."""
        found = healthy_pod("runs", annotations={self.annotation: text}, labels={} if self.gpu else _BOUND)
        amounts = found["spec"]["containers"][0]["resources"]
        if self.gpu:
            of_gpu = {"cpu": "1", "koordinator.sh/gpu-core": "1", "koordinator.sh/gpu-memory-ratio": "1"}
            amounts["requests"] = amounts["limits"] = of_gpu
        found["spec"] |= {"nodeName": _NODE, "schedulerName": "default-scheduler"}
        found["status"] = {"phase": "Running"}
        return found

    def new(self, name: str = "new") -> dict[str, Any]:
        found = healthy_pod(name, _NODE, labels={} if self.gpu else _BOUND)
        if self.gpu:
            amounts = {"cpu": "1", "koordinator.sh/gpu-core": "10", "koordinator.sh/gpu-memory-ratio": "10"}
            found["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
        return found


_SHARE: Final = _GPU_OF.replace("100", "1") % 0
CASES: Final = {
    "devices that are no JSON": Case("DeviceShare", keys.DEVICE_ALLOCATED, "{bad", _SHARE, gpu=True),
    "devices of no number": Case("DeviceShare", keys.DEVICE_ALLOCATED, '{"gpu":[{"minor":"x"}]}', _SHARE, gpu=True),
    "a device that is not there": Case("DeviceShare", keys.DEVICE_ALLOCATED, _GPU_OF % 7, _SHARE, gpu=True),
    "CPUs that are no JSON": Case("NodeNUMAResource", keys.RESOURCE_STATUS, "{bad", '{"cpuset":"0-3"}'),
    "a CPU that is not there": Case("NodeNUMAResource", keys.RESOURCE_STATUS, '{"cpuset":"0,900"}', '{"cpuset":"0-3"}'),
    "a NUMA node that cannot be": Case(
        "NodeNUMAResource",
        keys.RESOURCE_STATUS,
        '{"numaNodeResources":[{"node":-1,"resources":{"cpu":"4"}}]}',
        '{"numaNodeResources":[{"node":0,"resources":{"cpu":"4"}}]}',
    ),
    "CPUs that are no list": Case("NodeNUMAResource", keys.RESOURCE_STATUS, '{"cpuset":"a-b"}', '{"cpuset":"0-3"}'),
}


def play(story: Callable[[RunningScheduler], Awaitable[None]]) -> RunningScheduler:
    fixture = running_beside(two_nodes())

    async def run() -> None:
        async with fixture.running():
            await story(fixture)

    asyncio.run(run())
    return fixture


def notes(fixture: RunningScheduler) -> list[tuple[str, str]]:
    return [(reason, note) for name, reason, note in fixture.events.notes if name == "runs"]


def facts(fixture: RunningScheduler, plugin: str) -> dict[str, Any]:
    document = to_document(explain_node(fixture.scheduler.sources, _NODE))
    assert document is not None
    found: dict[str, Any] = document["plugins"][plugin]
    return found


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_cannot_be_known_is_given_to_nobody(case: Case) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.put(PODS, case.running(case.broken))
        await fixture.until_idle(2)
        fixture.api.put(PODS, case.new())
        fixture.api.put(PODS, healthy_pod("plain", _NODE))
        await fixture.until_idle(5)
        assert fixture.api.placed() == {"runs": _NODE, "plain": _NODE}
        (message,) = [
            note for name, reason, note in fixture.events.notes if (name, reason) == ("new", "FailedScheduling")
        ]
        assert "held by a pod whose allocation record cannot be read" in message
        (closed,) = facts(fixture, case.plugin)["closedBy"]
        assert closed["pod"] == "default/runs"
        ((reason, note),) = notes(fixture)
        assert reason == "UnreadableAllocation"
        assert note == closed["reason"]
        assert note.startswith(f"metadata.annotations[{case.annotation}]")
        assert "is not usable" in note
        assert "allowed" in note

    play(story)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("end", ["readable", "without a record", "gone", "finished"])
def test_it_opens_again(case: Case, end: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.put(PODS, case.running(case.broken))
        await fixture.until_idle(2)
        fixture.api.put(PODS, case.new())
        await fixture.until_idle(2)
        assert "new" not in fixture.api.placed()
        if end == "gone":
            fixture.api.remove(PODS, "runs", "default")
        else:
            after = case.running(case.readable if end == "readable" else case.broken)
            if end == "without a record":
                del after["metadata"]["annotations"]
            fixture.api.put(PODS, after | ({"status": {"phase": "Succeeded"}} if end == "finished" else {}))
        await fixture.until_idle(15)
        assert fixture.api.placed()["new"] == _NODE
        assert "closedBy" not in facts(fixture, case.plugin)

    play(story)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_known_of_a_pod_stays_when_its_record_is_spoilt(case: Case) -> None:
    """Its author is told, and others may have the rest, as long as this scheduler lives."""

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.put(PODS, case.running(case.readable))
        await fixture.until_idle(2)
        held = facts(fixture, case.plugin)
        fixture.api.put(PODS, case.running("{bad"))
        await fixture.until_idle(2)
        assert facts(fixture, case.plugin) == held
        fixture.api.put(PODS, case.new())
        await fixture.until_idle(5)
        assert fixture.api.placed()["new"] == _NODE
        assert [reason for reason, _ in notes(fixture)] == ["UnreadableAllocation"]

    play(story)


def test_cpus_that_their_node_shows_later_open_the_others() -> None:
    case = CASES["a CPU that is not there"]

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.remove(NODE_RESOURCE_TOPOLOGIES, _NODE, "")
        fixture.api.put(PODS, case.running(case.broken))
        await fixture.until_idle(2)
        assert notes(fixture) == []
        topology = healthy(NODE_RESOURCE_TOPOLOGIES, _NODE)
        fixture.api.put(NODE_RESOURCE_TOPOLOGIES, topology)
        fixture.api.put(PODS, case.new())
        await fixture.until_idle(5)
        assert "new" not in fixture.api.placed()
        assert [reason for reason, _ in notes(fixture)] == ["UnreadableAllocation"]
        more = json.loads(topology["metadata"]["annotations"][keys.CPU_TOPOLOGY])
        more["detail"].append({"id": 900, "core": 900, "socket": 0, "node": 1})
        annotations = topology["metadata"]["annotations"] | {keys.CPU_TOPOLOGY: json.dumps(more)}
        fixture.api.put(
            NODE_RESOURCE_TOPOLOGIES, topology | {"metadata": topology["metadata"] | {"annotations": annotations}}
        )
        await fixture.until_idle(15)
        assert fixture.api.placed()["new"] == _NODE

    play(story)


def test_a_device_that_its_node_shows_later_opens_the_others() -> None:
    case = CASES["a device that is not there"]

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.put(PODS, case.running(case.broken))
        await fixture.until_idle(2)
        fixture.api.put(PODS, case.new())
        await fixture.until_idle(2)
        assert "new" not in fixture.api.placed()
        device = healthy(DEVICES, _NODE)
        (one,) = device["spec"]["devices"]
        fixture.api.put(DEVICES, device | {"spec": {"devices": [one, one | {"minor": 7, "id": "gpu-7"}]}})
        await fixture.until_idle(15)
        assert fixture.api.placed()["new"] == _NODE

    play(story)


def test_a_reservation_closes_what_it_may_hold_too() -> None:
    case = CASES["devices that are no JSON"]
    reservation = to_document(available("r", "1", _NODE, once=False))
    amounts = case.new()["spec"]["containers"][0]["resources"]
    reservation["spec"]["template"]["spec"]["containers"][0]["resources"] = amounts
    reservation["status"]["allocatable"] = amounts["requests"]
    reservation["metadata"]["annotations"] = {case.annotation: case.broken}

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.put(RESERVATIONS, reservation)
        await fixture.until_idle(2)
        fixture.api.put(PODS, case.new())
        await fixture.until_idle(2)
        assert "new" not in fixture.api.placed()
        assert [(name, reason) for name, reason, _ in fixture.events.notes if name != "new"] == [
            ("r", "UnreadableAllocation")
        ]
        fixture.api.remove(RESERVATIONS, "r", "")
        await fixture.until_idle(15)
        assert fixture.api.placed()["new"] == _NODE

    play(story)


def test_its_author_is_told_once_whatever_happens_beside_it() -> None:
    case = CASES["a device that is not there"]

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.put(PODS, case.running(case.broken))
        await fixture.until_idle(2)
        for number in range(2):
            changed = case.running(case.broken)
            changed["metadata"]["labels"] = {"number": str(number)}
            fixture.api.put(PODS, changed)
            beside = case.running(case.readable)
            beside["metadata"]["name"] = f"beside-{number}"
            fixture.api.put(PODS, beside)
            await fixture.until_idle(2)
        assert len(notes(fixture)) == 1

    play(story)


def test_while_the_devices_of_a_node_are_not_known_none_is_missing() -> None:
    case = CASES["a device that is not there"]

    async def story(fixture: RunningScheduler) -> None:
        fixture.api.remove(DEVICES, _NODE, "")
        fixture.api.put(PODS, case.running(case.broken))
        await fixture.until_idle(2)
        assert notes(fixture) == []
        fixture.api.put(DEVICES, healthy(DEVICES, _NODE))
        await fixture.until_idle(2)
        assert [reason for reason, _ in notes(fixture)] == ["UnreadableAllocation"]
        fixture.api.remove(DEVICES, _NODE, "")
        await fixture.until_idle(2)
        assert "closedBy" not in facts(fixture, case.plugin)

    play(story)


def test_a_pod_that_requests_no_device_closes_none() -> None:
    case = CASES["devices that are no JSON"]

    async def story(fixture: RunningScheduler) -> None:
        running = case.running(case.broken)
        running["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
        fixture.api.put(PODS, running)
        await fixture.until_idle(2)
        fixture.api.put(PODS, case.new())
        await fixture.until_idle(2)
        assert fixture.api.placed()["new"] == _NODE
        assert notes(fixture) == []

    play(story)
