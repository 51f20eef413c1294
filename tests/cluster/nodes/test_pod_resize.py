"""A pod that is resized on a simulated node, and the debug containers that join it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from koordinator.api.kinds import NODES, PODS
from koordinator.base.clock import ManualClock
from koordinator.cluster.nodes.fleet import Fleet
from koordinator.cluster.nodes.scenario_checks import FAULT_ANNOTATION
from koordinator.kube.interface import PatchType
from tests.cluster.nodes.bound_pods import pod_document
from tests.cluster.nodes.fleets import play
from tests.in_memory_api import Document, InMemoryApi

NODE = "small-0"
"""Of 7800m allocatable CPUs."""


def _changed(api: InMemoryApi, name: str, **spec: Any) -> None:
    """What the API server stores of a change of the spec."""
    document = copy.deepcopy(api.document(PODS, name, "default"))
    document["metadata"]["generation"] += 1
    document["spec"] |= spec
    api.put(PODS, document)


def _sized(cpu: str, **more: Any) -> list[Document]:
    (container,) = pod_document("p", NODE, cpu=cpu)["spec"]["containers"]
    return [{**container, **more}]


def _pod(name: str, cpu: str, **more: Any) -> Document:
    document = pod_document(name, NODE, cpu=cpu, **more)
    document["metadata"]["generation"] = 1
    return document


def _played(*steps: Callable[[InMemoryApi], None], **pods: str) -> dict[str, Document]:
    """The statuses of pods of so many CPUs, by their names, after these steps, two seconds apart."""

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        for name, cpu in pods.items():
            api.put(PODS, _pod(name, cpu))
        await clock.advance(10)
        for step in steps:
            step(api)
            await clock.advance(2)

    api = play(script)
    return {document["metadata"]["name"]: document["status"] for document in api.all(PODS)}


def _wish(name: str, cpu: str, **more: Any) -> Callable[[InMemoryApi], None]:
    return lambda api: _changed(api, name, containers=_sized(cpu, **more))


def _leave(name: str) -> Callable[[InMemoryApi], None]:
    return lambda api: api.remove(PODS, name, "default")


def _status_after(*changes: dict[str, Any]) -> Document:
    """Of a pod of one CPU beside another of four."""
    steps = [partial(_changed, name="p", **change) for change in changes]
    return _played(*steps, p="1", other="4")["p"]


def _cpus(status: Document) -> tuple[str, str]:
    (container,) = status["containerStatuses"]
    return container["resources"]["requests"]["cpu"], container["allocatedResources"]["cpu"]


def _pending(status: Document) -> tuple[str, str] | None:
    found = [each for each in status["conditions"] if each["type"] == "PodResizePending"]
    return (found[0]["reason"], found[0]["message"]) if found else None


def test_a_container_that_runs_says_what_it_has() -> None:
    status = _status_after()
    assert (_cpus(status), status["observedGeneration"]) == (("1", "1"), 1)


def test_a_resize_is_granted_where_there_is_room() -> None:
    status = _status_after({"containers": _sized("2")})
    assert (_cpus(status), status["observedGeneration"], _pending(status)) == (("2", "2"), 2, None)
    assert status["containerStatuses"][0]["restartCount"] == 0


def test_a_container_is_restarted_where_its_policy_says_so() -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    status = _status_after({"containers": _sized("2", resizePolicy=policy)})
    assert status["containerStatuses"][0]["restartCount"] == 1


@pytest.mark.parametrize(
    ("cpu", "reason", "message"),
    [
        ("5", "Deferred", "Node didn't have enough resource: cpu, requested: 5000, used: 4000, capacity: 7800"),
        ("8", "Infeasible", "Node didn't have enough capacity: cpu, requested: 8000, capacity: 7800"),
    ],
)
def test_a_pod_keeps_what_it_has_where_there_is_no_room(cpu: str, reason: str, message: str) -> None:
    status = _status_after({"containers": _sized(cpu)})
    assert (_cpus(status), status["observedGeneration"]) == (("1", "1"), 2)
    assert _pending(status) == (reason, message)


def _running_since(status: Document, kind: str = "containerStatuses") -> list[str]:
    return [each["state"]["running"]["startedAt"] for each in status[kind]]


@pytest.mark.parametrize("makes_room", [_leave("other"), _wish("other", "2")], ids=["leaves", "shrinks"])
def test_a_deferred_resize_is_granted_when_another_pod_makes_room(makes_room: Callable[[InMemoryApi], None]) -> None:
    status = _played(_wish("p", "5"), makes_room, p="1", other="4")["p"]
    assert (_cpus(status), _pending(status)) == (("5", "5"), None)


def test_what_another_pod_waits_for_takes_no_room() -> None:
    status = _played(_wish("other", "7"), _wish("p", "3"), p="1", other="4")["p"]
    assert (_cpus(status), _pending(status)) == (("3", "3"), None)


def test_of_two_that_wait_one_is_granted_what_fits_one() -> None:
    statuses = _played(_wish("a", "4"), _wish("b", "4"), _leave("other"), a="1", b="1", other="4")
    assert sorted(_cpus(statuses[name])[0] for name in ("a", "b")) == ["1", "4"]


def test_a_pod_that_still_waits_writes_nothing_again() -> None:
    versions = []

    def note(api: InMemoryApi) -> None:
        versions.append(api.document(PODS, "p", "default")["metadata"]["resourceVersion"])

    _played(_wish("p", "5"), note, _leave("small"), note, p="1", other="4", small="0")
    assert versions[0] == versions[1]


def test_a_pod_whose_end_fell_due_while_it_waited_ends() -> None:
    """Its node is stopped then, and another pod leaves meanwhile."""

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        waits = _pod("p", "1", restartPolicy="Never")
        waits["spec"]["containers"][0]["command"] = ["sleep", "20"]
        for document in (waits, _pod("other", "4"), _pod("small", "0")):
            api.put(PODS, document)
        await clock.advance(10)
        _changed(
            api, "p", containers=[{**waits["spec"]["containers"][0], **_sized("5")[0], "command": ["sleep", "20"]}]
        )
        await clock.advance(2)
        await _annotated(api, "nodeStopped")
        await clock.advance(20)
        api.remove(PODS, "small", "default")
        await clock.advance(0.5)
        await _annotated(api, None)
        await clock.advance(10)

    status = play(script).document(PODS, "p", "default")["status"]
    assert status["phase"] == "Succeeded", status


async def _annotated(api: InMemoryApi, fault: str | None) -> None:
    annotations = {FAULT_ANNOTATION: fault}
    await api.client().patch(NODES, NODE, {"metadata": {"annotations": annotations}}, PatchType.MERGE)


def test_a_container_that_goes_on_keeps_its_start() -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    restarted = _sized("1", resizePolicy=policy)
    restarted[0]["resources"] = {"requests": {"cpu": "1", "memory": "2Gi"}}
    goes_on = copy.deepcopy(restarted)
    goes_on[0]["resources"]["requests"]["cpu"] = "2"
    once = _status_after({"containers": restarted})
    twice = _status_after({"containers": restarted}, {"containers": goes_on})
    assert _running_since(once) == _running_since(twice) > [once["startTime"]]
    assert [status["containerStatuses"][0]["restartCount"] for status in (once, twice)] == [1, 1]


def test_a_debug_container_keeps_its_start() -> None:
    debugger = [{"name": "debugger", "image": "busybox"}]
    once = _status_after({"ephemeralContainers": debugger})
    twice = _status_after({"ephemeralContainers": debugger}, {"containers": _sized("2")})
    kind = "ephemeralContainerStatuses"
    assert _running_since(once, kind) == _running_since(twice, kind) > [once["startTime"]]


def test_ephemeral_containers_join_a_running_pod() -> None:
    debuggers = [{"name": name, "image": "busybox"} for name in ("first", "second")]
    status = _status_after({"ephemeralContainers": debuggers[:1]}, {"ephemeralContainers": debuggers})
    found = {each["name"]: list(each["state"]) for each in status["ephemeralContainerStatuses"]}
    assert found == {"first": ["running"], "second": ["running"]}
    assert status["ephemeralContainerStatuses"][0]["imageID"] == "simulated://busybox"
