"""A pod that is resized on a simulated node, and the debug containers that join it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from koordinator.api.kinds import PODS
from koordinator.base.clock import ManualClock
from koordinator.cluster.nodes.fleet import Fleet
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


def _status_after(*changes: dict[str, Any], leaves: bool = False) -> Document:
    """Of a pod of one CPU beside another of four, which ``leaves`` in the end."""

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.put(PODS, _pod("p", "1"))
        api.put(PODS, _pod("other", "4"))
        await clock.advance(10)
        for change in changes:
            _changed(api, "p", **change)
            await clock.advance(2)
        if leaves:
            api.remove(PODS, "other", "default")
            await clock.advance(2)

    status: Document = play(script).document(PODS, "p", "default")["status"]
    return status


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


def test_a_deferred_resize_is_granted_when_another_pod_leaves() -> None:
    status = _status_after({"containers": _sized("5")}, leaves=True)
    assert (_cpus(status), _pending(status)) == (("5", "5"), None)


def test_ephemeral_containers_join_a_running_pod() -> None:
    debuggers = [{"name": name, "image": "busybox"} for name in ("first", "second")]
    status = _status_after({"ephemeralContainers": debuggers[:1]}, {"ephemeralContainers": debuggers})
    found = {each["name"]: list(each["state"]) for each in status["ephemeralContainerStatuses"]}
    assert found == {"first": ["running"], "second": ["running"]}
    assert status["ephemeralContainerStatuses"][0]["imageID"] == "simulated://busybox"
